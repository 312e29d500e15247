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

// DefaultTokenOverlap and MaxTokenOverlap bound [Rotation.Overlap].
const (
	DefaultTokenOverlap = 24 * time.Hour
	MaxTokenOverlap     = pki.MaxClientLifetime
)

// Rotation says which keys of a space to replace.
type Rotation struct {
	// CA is that of the space's client certificates. All that it issued are revoked at once.
	CA bool
	// ServiceAccountKey signs the space's service-account tokens. Those of the key before are accepted for as long as
	// Overlap, in which pods get new ones; if that is 0, they are refused at once.
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

// rotateKeys replaces keys of a space, which may sleep. Those who have it open use the old ones until they open it
// again.
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

// Rotate replaces keys of a space. Its pods run on. It may be called again if it fails, or does not end.
func (m *Manager) Rotate(ctx context.Context, space string, r Rotation) error {
	if _, ok := m.Status(space); !ok {
		return apierrors.NewNotFound(v1alpha1.Resource("spaces"), space)
	}
	end, err := m.changes.begin(space, "getting new keys")
	if err != nil {
		return err
	}
	defer end()
	// Once it has begun it goes on, whether or not somebody waits.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	if err := rotateKeys(m.config.DataDir, space, r); err != nil {
		return err
	}
	if err := m.Restart(ctx, space); err != nil {
		return fmt.Errorf("the keys of space %s are rotated, but it does not run with them yet: %w", space, err)
	}
	if r.ServiceAccountKey && m.processes.get(space) == nil {
		m.shard.WarmUp(space) // its pods are to get new tokens, if it sleeps too
	}
	return m.writeKubeconfig(ctx, space)
}

// Restart has a space read its keys anew, if it is awake.
func (m *Manager) Restart(ctx context.Context, space string) error {
	m.shard.ForgetCredentials(space)
	process := m.processes.get(space)
	if process == nil {
		return m.shard.Restart(ctx, space)
	}
	if m.pods != nil { // which has keys of its own, as they are here
		if err := m.sendIdentity(ctx, space, process); err != nil {
			return fmt.Errorf("%w; Berth retries", err) // see [podKeeper]
		}
		return process.Wake(ctx)
	}
	err := process.Restart(ctx)
	if errors.Is(err, control.ErrNotRunning) {
		return nil // it reads them when it starts
	}
	if err == nil {
		err = process.Wake(ctx)
	}
	return err
}

// serveRotation lets other commands rotate keys, through the control socket.
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

// RotateKeys replaces keys of a space of a data directory, through the platform that runs on it, or itself if none
// does.
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
