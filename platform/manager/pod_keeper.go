// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/kubeconfig"
	"github.com/berth-dev/berth/platform/spaceprocess"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/vcluster/pki"
)

// keepPod renews the tokens, certificates, and keys of a space's pod until ctx ends. It returns an error if the pod no
// longer runs the space, for example after its volume was lost.
func (m *Manager) keepPod(ctx context.Context, name string, spec v1alpha1.SpaceSpec, p *dedicated.Process) error {
	k := &podKeeper{Manager: m, space: name, pod: p, apply: func(ctx context.Context) error {
		_, err := m.applyPod(ctx, name, spec)
		return err
	}, stale: func(ctx context.Context) bool { return m.podServerChanged(ctx, name, spec.Store) }}
	for {
		pause, err := k.look(ctx)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// podKeeper compares what the pod of a space has with what it must have.
type podKeeper struct {
	*Manager
	space string
	pod   *dedicated.Process
	apply func(ctx context.Context) error // writes its objects on the host again, with a valid token
	stale func(ctx context.Context) bool  // reports whether apply would write something else
	owed  bool                            // apply has failed, and must be retried
}

// look sends the pod what it lacks now, and returns when to check again. Failures are retried, because the pod keeps
// running. It returns an error if the pod responds that it does not run the space. A pod that does not respond may run
// it.
func (k *podKeeper) look(life context.Context) (pause time.Duration, err error) {
	ctx, cancel := context.WithTimeout(life, startTimeout)
	defer cancel()
	var failures []error
	if k.owed || k.access.IsDue(k.space) || k.stale != nil && k.stale(ctx) {
		err := k.apply(ctx)
		k.owed = err != nil
		failures = append(failures, err)
	}
	state, isNew, err := k.checkPod(ctx, k.space, k.pod)
	if err != nil {
		return 0, err
	}
	switch {
	case state == nil: // its status has the reason
		pause = podRetry
	case isNew:
		pause = newPoll
	default:
		pause = renewPoll
	}
	if state != nil {
		files, err := k.identity(k.space)
		if err == nil && dedicated.IdentityDigest(files) != state.Identity {
			if err = k.checkManaged(ctx, k.space); err == nil {
				err = k.pod.PutIdentity(ctx, files)
			}
		}
		if err == nil && state.Waits {
			pause, err = podRetry, k.beginAgain(ctx, k.space, k.pod)
		}
		failures = append(failures, err)
	}
	if err := errors.Join(failures...); err != nil && life.Err() == nil {
		pause = podRetry
		k.logger.Error(err, "Could not renew the credentials of a dedicated space's pod; Berth retries", "space", k.space)
	}
	return pause, nil
}

// checkPod returns the state of a pod; nil if it does not respond. It also returns whether its space has no store yet.
// When a new space has got its store in the pod, checkPod records that, so that a later loss is detected. It fails if
// the pod responds that it does not run the space.
func (m *Manager) checkPod(ctx context.Context, name string, p *dedicated.Process) (state *dedicated.State, isNew bool, err error) {
	where, err := m.storeLocation(name)
	if err != nil {
		return nil, false, err
	}
	isNew = where != nil && where.New
	said, err := p.State(ctx)
	switch {
	case err != nil:
		return nil, isNew, nil //nolint:nilerr // as it says
	case !said.Begun:
		return nil, false, fmt.Errorf("the pod of space %s does not run it any more", name)
	case isNew && said.HasStore:
		return &said, false, m.noteStoreInPod(name, storeLocation{})
	}
	return &said, isNew, nil
}

// sendIdentity sends the keys of a space to its pod. They are issued and rotated on this machine.
func (m *Manager) sendIdentity(ctx context.Context, name string, p *dedicated.Process) error {
	files, err := m.identity(name)
	if err != nil {
		return err
	}
	return p.PutIdentity(ctx, files)
}

// identity returns the files that sendIdentity sends.
func (m *Manager) identity(name string) (map[string][]byte, error) {
	dir := datadir.Space(m.config.DataDir, name)
	_, err := pki.ServiceAccountKey(kubeconfig.ClientKeys(m.config.DataDir, name)) // create it here, so that the pod does not
	if err == nil {
		_, err = pki.Secret(dir, "node.key")
	}
	if err != nil {
		return nil, err
	}
	files, err := spaceprocess.ReadIdentity(dir)
	if err != nil {
		return nil, err
	}
	if store := m.config.Specs.Of(name).Store; !store.InServer() {
		delete(files, datadir.MovesFile)
	}
	files[spaceprocess.PodsAddressFile] = []byte(m.config.Pods.Address)
	return files, nil
}
