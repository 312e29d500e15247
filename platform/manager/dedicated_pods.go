// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/kubeconfig"
	"github.com/berth-dev/berth/platform/pod"
	"github.com/berth-dev/berth/platform/process"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/vcluster/pki"
)

// DedicatedPods says how the processes of dedicated spaces are pods.
type DedicatedPods struct {
	// Template is what the pods are made of, see [pod.ReadTemplate]; there are none if it is nil.
	Template *appsv1.StatefulSet
	// Address is where all pods listen and are reached, and DataDir their data directory, for tests, which run what a pod would.
	Address dedicated.Addresses
	DataDir string
}

// dedicatedPods run dedicated spaces in pods. It is nil if there are none.
type dedicatedPods struct {
	DedicatedPods
	*pod.Pods
	ca *pki.CA  // of the channel between the platform and the pods
	at sync.Map // by space: where its pod is reached, a [dedicated.Addresses]
}

// podTimeout is how long a pod may take to run and answer until its status says why it does not; podPoll is the pause between
// two tries.
const (
	podTimeout = time.Minute
	podPoll    = 500 * time.Millisecond
	// newPoll is the pause between two looks for the first store of a space that is new.
	newPoll = 2 * time.Second
)

// dedicatedCA is the name of the CA of the channel.
const dedicatedCA = "berth-dedicated"

func (m *Manager) openPods() error {
	if m.config.DedicatedPods.Template == nil {
		return nil
	}
	ca, err := pki.OpenCA(filepath.Join(m.config.DataDir, "dedicated-pki"), dedicatedCA)
	if err != nil {
		return err
	}
	m.pods = &dedicatedPods{
		DedicatedPods: m.config.DedicatedPods, ca: ca,
		Pods: &pod.Pods{Host: m.hostClient, Platform: m.config.PlatformName, Template: m.config.DedicatedPods.Template},
	}
	return nil
}

// locate returns where the pod of a space is.
func (p *dedicatedPods) locate(space string) (dedicated.Addresses, error) {
	if p.Address != (dedicated.Addresses{}) {
		return p.Address, nil
	}
	at, ok := p.at.Load(space)
	if !ok {
		return dedicated.Addresses{}, errors.New("the pod of the space is not made yet")
	}
	return at.(dedicated.Addresses), nil
}

// newPod prepares the pod of a space that is to have its own process, with a volume of its own.
func (m *Manager) newPod(name string, spec v1alpha1.SpaceSpec) *dedicated.Process {
	certificate := func() (tls.Certificate, error) {
		pair, err := m.pods.ca.Client(dedicated.PlatformUser(), nil)
		if err != nil {
			return tls.Certificate{}, err
		}
		return pair.TLS()
	}
	at := dedicated.Remote(func() (dedicated.Addresses, error) { return m.pods.locate(name) }, dedicated.ClientTLS(name, m.pods.ca.PEM, certificate))
	prepare := func(ctx context.Context) error { return m.prepare(ctx, name) }
	run := func(ctx context.Context, p *dedicated.Process, ready func()) error {
		if err := m.openPod(ctx, name, spec, p); err != nil {
			return err
		}
		if err := m.handOver(ctx, name, p); err != nil {
			return err
		}
		ready()
		return m.renewPod(ctx, name, spec, p)
	}
	return dedicated.NewRemote(name, datadir.Dedicated(m.config.DataDir, name), at, prepare, run, m.logger)
}

// renewPod has the pod of a space have tokens, certificates, and keys that are good, until ctx ends. What fails is tried again: the
// pod runs on. It returns an error if the pod does not run the space any more, as after the loss of its volume.
func (m *Manager) renewPod(ctx context.Context, name string, spec v1alpha1.SpaceSpec, p *dedicated.Process) error {
	for failed := false; ; {
		isNew, err := m.checkPod(ctx, name, p)
		if err != nil {
			return err
		}
		pause := renewPoll
		if isNew {
			pause = newPoll
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		if !failed && !m.access.isDue(name) {
			continue
		}
		_, err = m.applyPod(ctx, name, spec)
		err = errors.Join(err, m.sendIdentity(ctx, name, p))
		if failed = err != nil; failed && ctx.Err() == nil {
			m.logger.Error(err, "renew what the pod of a dedicated space has; it is tried again", "space", name)
		}
	}
}

// checkPod notes that a space that was new has its store in its pod by now, so that its loss is found, and returns whether it
// has none yet. It fails if the pod answers that it does not run the space; one that does not answer may run it.
func (m *Manager) checkPod(ctx context.Context, name string, p *dedicated.Process) (isNew bool, err error) {
	where, err := m.away(name)
	if err != nil {
		return false, err
	}
	state, err := p.State(ctx)
	switch {
	case err != nil:
		return where != nil && where.New, nil //nolint:nilerr // its status says so
	case !state.Begun:
		return false, fmt.Errorf("the pod of space %s does not run it any more", name)
	case where != nil && where.New && state.HasStore:
		return false, m.markAway(name, away{})
	}
	return where != nil && where.New, nil
}

// incarnationFile is in the directory of a space that has a pod, or had one that may be left, and in the pod. What it holds is
// random, and another for each pod with a volume of its own: the answer of one that is being deleted is not taken for the next one's.
const incarnationFile = "incarnation"

// newIncarnation has the next pod of a space be told from the one before.
func newIncarnation(dir string) error {
	incarnation := make([]byte, 32) // as [pki.Secret] has
	if _, err := rand.Read(incarnation); err != nil {
		return fmt.Errorf("make another incarnation of a pod: %w", err)
	}
	if err := pki.WriteFile(filepath.Join(dir, incarnationFile), incarnation); err != nil {
		return fmt.Errorf("make another incarnation of a pod: %w", err)
	}
	return nil
}

// podFiles are what the process in the pod of a space finds in its directory, and the digest of what it reads once.
func (m *Manager) podFiles(ctx context.Context, name string, spec v1alpha1.SpaceSpec) (files map[string][]byte, digest string, err error) {
	d := process.Dedicated{Options: m.config.Options, Space: name, Closed: m.closed, Endpoint: strings.TrimSuffix(m.env.Endpoint(""), gateway.Path("")), Listen: pod.Listen()}
	d.DataDir, d.Pods.Address = pod.DataDir, "" // which is another after each start, see podsAddressFile
	if m.pods.Address != (dedicated.Addresses{}) {
		d.Listen, d.DataDir = m.pods.Address, m.pods.DataDir
	}
	d.Spaces = []v1alpha1.Space{{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}}
	config, err := json.Marshal(d)
	if err != nil {
		return nil, "", fmt.Errorf("write the configuration of space %s: %w", name, err)
	}
	host, err := m.access.kubeconfig()
	if err != nil {
		return nil, "", err
	}
	token, err := m.access.token(ctx, name)
	if err != nil {
		return nil, "", err
	}
	pair, err := m.pods.ca.Server(dedicated.ServerName(name))
	if err != nil {
		return nil, "", err
	}
	incarnation, err := pki.Secret(datadir.Dedicated(m.config.DataDir, name), incarnationFile)
	if err != nil {
		return nil, "", err
	}
	return map[string][]byte{
		incarnationFile: incarnation, configFile: config, hostKubeconfigFile: host, hostTokenFile: []byte(token), servingCAFile: m.env.CA.PEM(),
		dedicated.CertFile: pair.Cert, dedicated.KeyFile: pair.Key, dedicated.ClientsFile: m.pods.ca.PEM(),
	}, pod.Digest(config, host, incarnation), nil
}

// applyPod makes the pod of a space, or has it have what is new. It returns the digest of what the process reads once.
func (m *Manager) applyPod(ctx context.Context, name string, spec v1alpha1.SpaceSpec) (digest string, err error) {
	files, digest, err := m.podFiles(ctx, name, spec)
	if err != nil {
		return "", err
	}
	at, err := m.pods.Apply(ctx, name, files, digest)
	if err != nil {
		return "", err
	}
	m.pods.at.Store(name, at)
	return digest, nil
}

// openPod makes the pod of a space, and returns when it answers with the configuration that it has now.
func (m *Manager) openPod(ctx context.Context, name string, spec v1alpha1.SpaceSpec, p *dedicated.Process) error {
	digest, err := m.applyPod(ctx, name, spec)
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, podPoll, podTimeout, true, func(ctx context.Context) (bool, error) {
		state, err := p.State(ctx)
		if last = err; err == nil && state.Config != digest {
			last = errors.New("the pod has not been replaced yet")
		}
		return last == nil, nil
	})
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("the pod of space %s does not answer: %w; %s", name, last, m.pods.Why(ctx, name))
}

// awayFile is in the directory of a space whose store is in its pod: the platform has no store of it, or one that is old.
const awayFile = "away.json"

// away is what awayFile says.
type away struct {
	// New says that the space had no store when it began to run in its pod.
	New bool `json:"new,omitempty"`
}

// away returns nil if the store of a space is here.
func (m *Manager) away(name string) (*away, error) {
	return readAway(datadir.Space(m.config.DataDir, name))
}

func readAway(dir string) (*away, error) {
	path := filepath.Join(dir, awayFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find where the store of a space is: %w", err)
	}
	a := &away{}
	if err := json.Unmarshal(data, a); err != nil {
		return nil, fmt.Errorf("find where the store of a space is: %s: %w", path, err)
	}
	return a, nil
}

func (m *Manager) markAway(name string, a away) error {
	data, err := json.Marshal(a)
	if err == nil {
		err = pki.WriteFile(filepath.Join(datadir.Space(m.config.DataDir, name), awayFile), data)
	}
	if err != nil {
		return fmt.Errorf("note where the store of space %s is: %w", name, err)
	}
	return nil
}

// handOver has the pod of a space, which answers, have the store, and run the space. A crash at any point leaves one store that
// counts: the one here until awayFile is there, and the pod's from then on. The pod does not run the space before.
func (m *Manager) handOver(ctx context.Context, name string, p *dedicated.Process) error {
	where, err := m.away(name)
	if err != nil {
		return err
	}
	state, err := p.State(ctx)
	if err != nil {
		return err
	}
	dir := datadir.Space(m.config.DataDir, name)
	switch {
	case where == nil && state.Begun:
		return fmt.Errorf("the pod of space %s runs it, and there is a store of it in %s, too; if that is the one that counts, delete StatefulSet %s with its claim, else create the file %s with {}",
			name, dir, pod.Name(name), filepath.Join(dir, awayFile))
	case where == nil:
		isNew := !snapshot.Exists(dir)
		if !isNew {
			if err := closeInOrder(ctx, name, dir); err != nil {
				return err
			}
			if err := p.PutStore(ctx, filepath.Join(dir, "store.db"), false); err != nil {
				return err
			}
		}
		if err := m.markAway(name, away{New: isNew}); err != nil {
			return err
		}
	case !where.New && !state.HasStore:
		return fmt.Errorf("the pod of space %s has lost its store; restore the space from a snapshot: berth snapshot restore %[1]s", name)
	case where.New && state.HasStore:
		if err := m.markAway(name, away{}); err != nil {
			return err
		}
	}
	if err := removeStore(dir); err != nil {
		return err
	}
	if err := m.sendIdentity(ctx, name, p); err != nil {
		return err
	}
	return p.Begin(ctx)
}

// sendIdentity has the pod of a space have the keys that are here, where they are issued and rotated.
func (m *Manager) sendIdentity(ctx context.Context, name string, p *dedicated.Process) error {
	dir := datadir.Space(m.config.DataDir, name)
	_, err := pki.ServiceAccountKey(kubeconfig.ClientKeys(m.config.DataDir, name)) // so that it is not made there
	if err == nil {
		_, err = pki.Secret(dir, "node.key")
	}
	if err != nil {
		return err
	}
	files, err := readIdentity(dir)
	if err != nil {
		return err
	}
	files[podsAddressFile] = []byte(m.config.Pods.Address)
	return p.PutIdentity(ctx, files)
}

// bringHome takes the store of a space from its pod, which stops. spec is what the space runs with there.
func (m *Manager) bringHome(ctx context.Context, name string, spec v1alpha1.SpaceSpec) error {
	where, err := m.away(name)
	if err != nil || where == nil {
		return err
	}
	if m.pods == nil {
		return errNoPods
	}
	p := m.newPod(name, spec)
	if err := m.openPod(ctx, name, spec, p); err != nil {
		return err
	}
	if err := p.End(ctx); err != nil {
		return fmt.Errorf("stop space %s in its pod: %w", name, err)
	}
	state, err := p.State(ctx)
	if err != nil {
		return err
	}
	dir, scratch := datadir.Space(m.config.DataDir, name), datadir.Scratch(m.config.DataDir)
	switch {
	case state.HasStore:
		received, err := os.MkdirTemp(scratch, "fetch-*")
		if err != nil {
			return err
		}
		defer os.RemoveAll(received)
		store := filepath.Join(received, "received.db")
		if err := p.CopyStore(ctx, store, m.mostOfStore(name)); err != nil {
			return err
		}
		if err := snapshot.Place(store, dir, scratch); err != nil {
			return fmt.Errorf("take the store of space %s: %w", name, err)
		}
	case !where.New:
		return fmt.Errorf("the pod of space %s has lost its store; restore the space from a snapshot: berth snapshot restore %[1]s", name)
	}
	if after, err := p.State(ctx); err != nil || after.Begun {
		return errors.Join(err, fmt.Errorf("space %s has begun to run in its pod again; the change is tried again", name))
	}
	if err := os.Remove(filepath.Join(dir, awayFile)); err != nil {
		return fmt.Errorf("note where the store of space %s is: %w", name, err)
	}
	return syncDir(dir)
}

// leavePod is bringHome for a space that runs in its pod, and goes on there if that fails.
func (m *Manager) leavePod(ctx context.Context, name string, spec v1alpha1.SpaceSpec) error {
	if m.pods == nil {
		return nil
	}
	running := m.processes.get(name)
	if running != nil { // so that nothing lets the space run meanwhile
		if err := running.Stop(ctx); err != nil {
			return err
		}
	}
	err := m.bringHome(ctx, name, spec)
	if err != nil && running != nil {
		m.processes.swap(name, m.newPod(name, spec))
		m.start(name)
	}
	return err
}

// endPod stops a space in its pod, which stays, as far as it can be reached.
func (m *Manager) endPod(ctx context.Context, name string) {
	process := m.processes.get(name)
	if m.pods == nil || process == nil {
		return
	}
	if err := errors.Join(process.Stop(ctx), process.End(ctx)); err != nil {
		m.logger.Error(err, "Could not stop a space in its pod, which goes on for as long as its token is good", "space", name)
	}
}

// bringHomeToDelete takes the store of a space that is to be retained or copied from its pod.
func (m *Manager) bringHomeToDelete(ctx context.Context, name string) error {
	before, err := readApplied(datadir.Space(m.config.DataDir, name))
	if err != nil || before == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return m.bringHome(ctx, name, before.Spec)
}

// errNoPods is of a space whose store is in a pod, on a platform that has none.
var errNoPods = errors.New("the store of the space is in a pod of its own, and this platform runs none; start Berth with --dedicated-pods")

// errInPod is of a space whose store is in its pod, which this platform does not serve now. The volume is the only one that has it.
func errInPod(name string) error {
	return fmt.Errorf("the store of space %s is in its pod, and the space does not run there: create its Space object again with spec.isolation Dedicated, and raise --dedicated-max if that is reached; then restore the space, or delete it", name)
}

// removePod deletes the pod of a space, if it ever had one, with its volume, and returns what is left. The store must be here, or
// count no more.
func (m *Manager) removePod(ctx context.Context, name string) (left string, err error) {
	if m.pods == nil {
		if where, err := m.away(name); err != nil || where != nil {
			return "", errors.Join(err, errNoPods)
		}
		return "", nil
	}
	if _, err := os.Stat(datadir.Dedicated(m.config.DataDir, name)); err != nil {
		return "", nil
	}
	return m.pods.Remove(ctx, name)
}

// removeStore removes a store that has been handed over.
func removeStore(dir string) error {
	for _, name := range []string{"store.db", "store.db-wal", "store.db-shm", "store.db.replaced", "store.db.replaced-wal"} {
		if err := removeIfThere(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// closeInOrder has what is in the log of a store that was killed be in its file. Nobody has it open.
func closeInOrder(ctx context.Context, space, dir string) error {
	path := filepath.Join(dir, "store.db")
	if _, err := os.Stat(path + "-wal"); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	store, err := kine.Open(ctx, kine.Options{Path: path, Name: space})
	if err != nil {
		return fmt.Errorf("close the store of space %s: %w", space, err)
	}
	return store.Close()
}
