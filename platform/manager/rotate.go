// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/kubeconfig"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/vcluster/pki"
)

// These are the default and the maximum of [Rotation.Overlap].
const (
	DefaultTokenOverlap = 24 * time.Hour
	MaxTokenOverlap     = pki.MaxClientLifetime
)

// Rotation says which keys of a space to replace.
type Rotation struct {
	// CA replaces the CA of the space's client certificates, which revokes all of them at once.
	CA bool
	// ServiceAccountKey replaces the key of the space's service-account tokens. Tokens of the old key are valid for
	// Overlap, in which pods get new ones. If Overlap is 0, they are rejected at once.
	ServiceAccountKey bool
	Overlap           time.Duration
}

func (r *Rotation) check() error {
	switch {
	case !r.CA && !r.ServiceAccountKey:
		return errors.New("nothing to rotate: set --ca, --service-account-key, or both")
	case r.Overlap < 0 || r.Overlap > MaxTokenOverlap:
		return fielderror.New("overlap", r.Overlap, "must be from 0s to %s, the longest lifetime of a requested token", MaxTokenOverlap)
	}
	return nil
}

func (r *Rotation) query() url.Values {
	return url.Values{
		"ca": {strconv.FormatBool(r.CA)}, "service-account-key": {strconv.FormatBool(r.ServiceAccountKey)}, "overlap": {r.Overlap.String()},
	}
}

func parseRotation(q url.Values) (r Rotation, err error) {
	var errs [3]error
	r.CA, errs[0] = strconv.ParseBool(q.Get("ca"))
	r.ServiceAccountKey, errs[1] = strconv.ParseBool(q.Get("service-account-key"))
	r.Overlap, errs[2] = time.ParseDuration(q.Get("overlap"))
	if err := errors.Join(errs[:]...); err != nil {
		return r, err
	}
	return r, r.check()
}

// rotateKeys replaces keys of a space, which may sleep. A running space uses the old keys until it reads the new ones.
func rotateKeys(dataDir, space string, r Rotation) error {
	ca, err := kubeconfig.OpenClientCA(dataDir, space)
	if err == nil && r.CA {
		err = ca.Rotate()
	}
	if err == nil && r.ServiceAccountKey {
		err = pki.RotateServiceAccountKey(kubeconfig.ClientKeys(dataDir, space), time.Now(), r.Overlap)
	}
	if err != nil {
		return fmt.Errorf("rotate keys of space %s: %w", space, err)
	}
	return nil
}

// Rotate replaces keys of a space. Its pods keep running. After a failure or a crash, it may be called again.
func (m *Manager) Rotate(ctx context.Context, space string, r Rotation) error {
	if _, ok := m.Status(space); !ok {
		return apierrors.NewNotFound(v1alpha1.Resource("spaces"), space)
	}
	end, err := m.changes.Begin(space, "getting new keys")
	if err != nil {
		return err
	}
	defer end()
	// From here on, it continues even if the caller no longer waits.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	if err := rotateKeys(m.config.DataDir, space, r); err != nil {
		return err
	}
	if err := m.Restart(ctx, space); err != nil {
		return fmt.Errorf("the keys of space %s are rotated, but it does not run with them yet: %w", space, err)
	}
	if m.processes.get(space) == nil && m.config.Specs.Of(space).Store.InServer() {
		if err := m.shard.Wake(ctx, space); err != nil { // the database gets the new keys when the space starts
			return fmt.Errorf("the keys of space %s are rotated, but its database doesn't have them yet: %w", space, err)
		}
	}
	if r.ServiceAccountKey && m.processes.get(space) == nil {
		m.shard.WarmUp(space) // even a space that sleeps wakes, so that its pods get new tokens
	}
	defer m.changed(space) // the kubeconfigs of its owners follow
	return m.writeKubeconfig(ctx, space)
}

// Restart makes a space read its keys again, if it is awake.
func (m *Manager) Restart(ctx context.Context, space string) error {
	m.shard.ForgetCredentials(space)
	process := m.processes.get(space)
	if process == nil {
		return m.shard.Restart(ctx, space)
	}
	if m.pods != nil { // which has a copy of the keys
		if err := m.sendIdentity(ctx, space, process); err != nil {
			return fmt.Errorf("%w; Berth retries", err) // by [podKeeper]
		}
		return process.Wake(ctx)
	}
	err := process.Restart(ctx)
	if errors.Is(err, control.ErrNotRunning) {
		return nil // it reads the keys when it starts
	}
	if err == nil {
		err = process.Wake(ctx)
	}
	return err
}

// serveRotation serves the command that rotates keys, on the control socket.
func serveRotation(mux *http.ServeMux, rotate func(ctx context.Context, space string, r Rotation) error) {
	mux.Handle("POST /spaces/{name}/rotate", control.Answer(func(r *http.Request) (any, error) {
		rotation, err := parseRotation(r.URL.Query())
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		name := r.PathValue("name")
		err = rotate(r.Context(), name, rotation)
		if errors.Is(err, shard.ErrUnknown) {
			return nil, apierrors.NewNotFound(v1alpha1.Resource("spaces"), name)
		}
		return name, err
	}))
}

// RotateKeys replaces keys of a space in a data directory. If a platform runs on the directory, the platform does that.
func RotateKeys(ctx context.Context, dataDir, space string, r Rotation) error {
	if err := r.check(); err != nil {
		return err
	}
	if err := isolation.CheckSpaceName(space); err != nil {
		return err
	}
	path := "/spaces/" + url.PathEscape(space) + "/rotate?" + r.query().Encode()
	err := control.NewClient(dataDir).Do(ctx, http.MethodPost, path, nil)
	if !errors.Is(err, control.ErrNotRunning) {
		return err
	}
	lock, err := datadir.Lock(dataDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := rotateKeys(dataDir, space, r); err != nil {
		return err
	}
	_, err = kubeconfig.Read(dataDir, space)
	return err
}
