// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/hostaccess"
	"github.com/berth-dev/berth/platform/peers"
	"github.com/berth-dev/berth/platform/pod"
	"github.com/berth-dev/berth/platform/process"
	"github.com/berth-dev/berth/platform/spaceprocess"
	"github.com/berth-dev/berth/platform/specs"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/vcluster/pki"
)

// DedicatedPods configures the pods in which dedicated spaces run.
type DedicatedPods struct {
	// Template is the template of the pods, see [pod.ReadTemplate]. If it is nil, dedicated spaces don't run in pods.
	Template *appsv1.StatefulSet
	// Address and DataDir are for tests, which run a process in place of each pod: the address at which it listens, and
	// its data directory.
	Address dedicated.Addresses
	DataDir string
}

// dedicatedPods runs dedicated spaces in pods. It is nil if they don't run in pods.
type dedicatedPods struct {
	DedicatedPods
	*pod.Pods
	ca *pki.CA  // signs the certificates of connections between the platform and the pods
	at sync.Map // maps spaces to the addresses of their pods, as [dedicated.Addresses]
	// servers maps spaces to the contents of [spaceprocess.ServerFile], a string, that their pods are to have.
	servers sync.Map
	// client is the platform's certificate for connections to the pods.
	client *pod.ClientCertificate
}

// podTimeout is how long a pod may take to start until its status reports a reason; podPoll is the pause between two
// checks.
const (
	podTimeout = time.Minute
	podPoll    = 500 * time.Millisecond
	// newPoll is the pause between two checks for the first store of a new space.
	newPoll = 2 * time.Second
	// podRetry is the pause after a pod did not respond, or did not accept a change.
	podRetry = 10 * time.Second
)

// dedicatedCA is the name of the CA of connections to the pods.
const dedicatedCA = "berth-dedicated"

func (m *Manager) openPods(ctx context.Context) error {
	if m.config.DedicatedPods.Template == nil {
		return nil
	}
	ca, err := m.env.Peers.OpenCA(ctx, peers.PodsSecret, filepath.Join(m.config.DataDir, "dedicated-pki"), dedicatedCA)
	if err != nil {
		return err
	}
	m.pods = &dedicatedPods{
		DedicatedPods: m.config.DedicatedPods, ca: ca, client: pod.NewClientCertificate(ca, clock.RealClock{}),
		Pods: &pod.Pods{Host: m.hostClient, Platform: m.config.PlatformName, Template: m.config.DedicatedPods.Template},
	}
	return nil
}

// locate returns the addresses of the pod of a space.
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

// newPod returns the process of a dedicated space that runs in a pod.
func (m *Manager) newPod(name string, spec v1alpha1.SpaceSpec) *dedicated.Process {
	at := dedicated.Remote(func() (dedicated.Addresses, error) { return m.pods.locate(name) }, dedicated.ClientTLS(name, m.pods.ca.PEM, m.pods.client.Get))
	prepare := func(ctx context.Context) error { return m.prepareDedicated(ctx, name) }
	run := func(ctx context.Context, p *dedicated.Process, ready func()) error {
		if err := m.openPod(ctx, name, spec, p); err != nil {
			return err
		}
		if err := m.moveStoreToPod(ctx, name, p); err != nil {
			return err
		}
		ready()
		return m.keepPod(ctx, name, spec, p)
	}
	return dedicated.NewRemote(name, datadir.Dedicated(m.config.DataDir, name), at, prepare, run, m.logger)
}

// newIncarnation writes a new random ID for the next pod of a space, to distinguish it from earlier ones.
func newIncarnation(dir string) error {
	incarnation := make([]byte, 32) // as long as a [pki.Secret]
	if _, err := rand.Read(incarnation); err != nil {
		return fmt.Errorf("make another incarnation of a pod: %w", err)
	}
	err := removeIfThere(filepath.Join(dir, claimsFile)) // of the earlier pod
	if err == nil {
		err = pki.WriteFile(filepath.Join(dir, spaceprocess.IncarnationFile), incarnation)
	}
	if err != nil {
		return fmt.Errorf("make another incarnation of a pod: %w", err)
	}
	return nil
}

// podFilesHere returns the paths of the files by which this process manages the pod of a space, if it has one, or may have left one.
func (m *Manager) podFilesHere(name string) []string {
	dir := datadir.Dedicated(m.config.DataDir, name)
	return []string{filepath.Join(dir, spaceprocess.IncarnationFile), filepath.Join(dir, claimsFile)}
}

// dedicatedMax returns how many dedicated spaces this process may have, so that it can have this one. The limit is for new ones: one whose pod
// exists, because it comes from another shard or doesn't move after all, would be served by nobody.
func (m *Manager) dedicatedMax(name string) int {
	if m.pods != nil {
		if _, err := os.Stat(filepath.Join(datadir.Dedicated(m.config.DataDir, name), spaceprocess.IncarnationFile)); err == nil {
			return math.MaxInt
		}
	}
	return m.config.DedicatedMax
}

// adoptPod prepares to manage the pod of a space with a store in a database server, which another shard has managed. The pod runs on if the host
// still knows its incarnation. Otherwise, the space gets another pod, if needed says so. If it doesn't, a pod that is left is removed later.
func (m *Manager) adoptPod(ctx context.Context, name string, needed bool) error {
	incarnation, err := m.pods.Known(ctx, name, spaceprocess.IncarnationFile)
	if err != nil || !needed && len(incarnation) == 0 {
		return err
	}
	dir := datadir.Dedicated(m.config.DataDir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := newIncarnation(dir); err != nil || len(incarnation) == 0 {
		return err
	}
	return pki.WriteFile(filepath.Join(dir, spaceprocess.IncarnationFile), incarnation)
}

// podConfig returns the configuration of the process in a space's pod.
func (m *Manager) podConfig(name string, spec v1alpha1.SpaceSpec) process.Dedicated {
	d := process.Dedicated{
		Options: m.config.Options, Space: name, Closed: m.closed, Endpoint: strings.TrimSuffix(m.env.Endpoint(""), gateway.Path("")), Listen: pod.Listen(),
	}
	d.DataDir, d.Pods.Address = pod.DataDir, "" // which changes with each start, see spaceprocess.PodsAddressFile
	if m.pods.Address != (dedicated.Addresses{}) {
		d.Listen, d.DataDir = m.pods.Address, m.pods.DataDir
	}
	d.Spaces = []v1alpha1.Space{{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: specs.WithoutEnforced(spec)}}
	withoutSnapshots(&d)
	return d
}

// withoutSnapshots removes where snapshots are stored from the configuration of a process that a tenant may take over. The platform takes them,
// and replicates the store.
func withoutSnapshots(d *process.Dedicated) {
	d.SnapshotDestinations, d.SpaceDefaults.Snapshots = nil, v1alpha1.Snapshots{}
	for i := range d.Spaces {
		d.Spaces[i].Spec.Snapshots = v1alpha1.Snapshots{}
	}
}

// podFiles returns the files in the directory of the process in a space's pod, and the digest of those that it reads
// only once.
func (m *Manager) podFiles(ctx context.Context, name string, spec v1alpha1.SpaceSpec) (files map[string][]byte, digest string, err error) {
	d := m.podConfig(name, spec)
	config, err := json.Marshal(d)
	if err != nil {
		return nil, "", fmt.Errorf("write the configuration of space %s: %w", name, err)
	}
	enforced, err := spaceprocess.EncodeAccess(m.config.Specs.Access(name).Get())
	if err != nil {
		return nil, "", err
	}
	host, err := m.access.Kubeconfig()
	if err != nil {
		return nil, "", err
	}
	token := m.access.Token
	if m.deletions.has(name) { // whoever has taken over the pod could make the deletion last, and use the host for as long
		token = m.access.LastToken
	}
	account, err := token(ctx, name)
	if err != nil {
		return nil, "", err
	}
	pair, err := m.pods.ca.Server(dedicated.ServerName(name))
	if err != nil {
		return nil, "", err
	}
	incarnation, err := pki.Secret(datadir.Dedicated(m.config.DataDir, name), spaceprocess.IncarnationFile)
	if err != nil {
		return nil, "", err
	}
	files = map[string][]byte{
		spaceprocess.IncarnationFile: incarnation, spaceprocess.ConfigFile: config, spaceprocess.AccessFile: enforced, hostaccess.KubeconfigFile: host, hostaccess.TokenFile: []byte(account), hostaccess.ServingCAFile: m.servingCA(),
		dedicated.CertFile: pair.Cert, dedicated.KeyFile: pair.Key, dedicated.ClientsFile: m.pods.ca.PEM(),
	}
	if spec.Store.InServer() {
		if files[spaceprocess.ServerFile], err = m.podServer(ctx, name, spec.Store); err != nil {
			return nil, "", err
		}
	}
	return files, pod.Digest(config, host, incarnation), nil
}

// applyPod creates or updates the pod of a space. It returns the digest of the files that the process reads only once.
func (m *Manager) applyPod(ctx context.Context, name string, spec v1alpha1.SpaceSpec) (digest string, err error) {
	if err := m.checkManaged(ctx, name); err != nil {
		return "", err
	}
	files, digest, err := m.podFiles(ctx, name, spec)
	if err != nil {
		return "", err
	}
	claims, err := m.podClaims(name)
	if err != nil {
		return "", err
	}
	at, err := m.pods.Apply(ctx, name, files, digest, claims)
	if at != (dedicated.Addresses{}) {
		m.pods.at.Store(name, at)
	}
	if err != nil {
		return "", err
	}
	return digest, nil
}

// checkManaged fails if another shard manages the pod of a space, by what the host says now: this one may have seemed dead for a while. The
// object of a space that is being deleted may be gone.
func (m *Manager) checkManaged(ctx context.Context, name string) error {
	if err := m.checkHere(ctx, name); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// openPod creates or updates the pod of a space, and returns when the pod responds with the current configuration.
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

// endPod stops a space in its pod, if the pod can be reached. The pod stays.
func (m *Manager) endPod(ctx context.Context, name string) {
	process := m.processes.get(name)
	if m.pods == nil || process == nil {
		return
	}
	if err := errors.Join(process.Stop(ctx), process.End(ctx)); err != nil {
		m.logger.Error(err, "Could not stop a space in its pod; it runs until its token expires", "space", name)
	}
}

// errPodLeft returns the error for a space with a pod, on a platform that is not configured for pods.
func errPodLeft(name, dir string) error {
	return fmt.Errorf("the space had a pod of its own, which may be left with its volume, and this platform runs none; start berth with --dedicated-pods, or delete StatefulSet %s with its claim, and the Service and the Secret of that name, and then the directory %s",
		pod.Name(name), dir)
}

// removePod deletes the pod of a space with its volume, and returns what is left. The store must have been moved here,
// or must no longer be needed.
func (m *Manager) removePod(ctx context.Context, name string) (left string, err error) {
	dir := datadir.Dedicated(m.config.DataDir, name)
	if m.pods == nil {
		if where, err := m.storeLocation(name); err != nil || where != nil {
			return "", errors.Join(err, errNoPods)
		}
		if _, err := os.Stat(filepath.Join(dir, spaceprocess.IncarnationFile)); err == nil {
			return "", errPodLeft(name, dir)
		}
		return "", nil
	}
	if _, err := os.Stat(dir); err != nil {
		return "", nil
	}
	if err := m.checkManaged(ctx, name); err != nil {
		return "", err
	}
	return m.pods.Remove(ctx, name)
}

// claimsFile is a file in the directory of a space with a pod. It contains the volume claims with which its StatefulSet
// was created. They are immutable, and the platform may not read StatefulSets.
const claimsFile = "claims.json"

// podClaims returns the claims of a space's pod: those with which it was created, or those of the template if it is
// new.
func (m *Manager) podClaims(name string) ([]corev1.PersistentVolumeClaim, error) {
	path := filepath.Join(datadir.Dedicated(m.config.DataDir, name), claimsFile)
	made, err := datadir.ReadJSON[[]corev1.PersistentVolumeClaim](path)
	if err != nil {
		return nil, fmt.Errorf("find the claims of the pod of space %s: %w", name, err)
	}
	if made != nil {
		return *made, nil
	}
	claims := m.templateClaims(name)
	if err := datadir.WriteJSON(path, claims); err != nil {
		return nil, fmt.Errorf("note the claims of the pod of space %s: %w", name, err)
	}
	return claims, nil
}

// templateClaims returns the claims of a new pod of a space. One with a store in a database server needs none.
func (m *Manager) templateClaims(name string) []corev1.PersistentVolumeClaim {
	if store := m.config.Specs.Of(name).Store; store.InServer() {
		return []corev1.PersistentVolumeClaim{}
	}
	return m.pods.DedicatedPods.Template.Spec.VolumeClaimTemplates
}

// volumeCondition returns the condition VolumeCurrent of a space. It is nil if the space has no pod, or if the volume
// of the pod matches the template.
func (m *Manager) volumeCondition(name string) *metav1.Condition {
	if m.pods == nil || m.processes.get(name) == nil {
		return nil
	}
	made, err := datadir.ReadJSON[[]corev1.PersistentVolumeClaim](filepath.Join(datadir.Dedicated(m.config.DataDir, name), claimsFile))
	if err != nil || made == nil || equality.Semantic.DeepEqual(*made, m.templateClaims(name)) {
		return nil
	}
	return &metav1.Condition{
		Type: v1alpha1.ConditionVolumeCurrent, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonTemplateChanged,
		Message: "dedicated.storage of the chart has changed since the volume of the space was made, and a volume keeps its class and size; " +
			"to move the space to a new volume, set spec.isolation to Shared, wait until it is Ready, and set it to Dedicated again",
	}
}
