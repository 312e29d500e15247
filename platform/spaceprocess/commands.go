// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spaceprocess

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/shard"
)

// SpaceSet is one or more shards.
type SpaceSet interface {
	List() []shard.Status
	Status(name string) (shard.Status, bool)
	Wake(ctx context.Context, name string) error
	Sleep(ctx context.Context, name string) error
	Restart(ctx context.Context, name string) error
}

// ServeSpaces serves the commands that show spaces, wake them, put them to sleep, and make them read their keys again,
// on the control socket.
func ServeSpaces(mux *http.ServeMux, spaces SpaceSet) {
	mux.Handle("GET /spaces", control.Answer(func(*http.Request) (any, error) { return spaces.List(), nil }))
	mux.Handle("GET /spaces/{name}", control.Answer(func(r *http.Request) (any, error) {
		status, ok := spaces.Status(r.PathValue("name"))
		if !ok {
			return nil, apierrors.NewNotFound(v1alpha1.Resource("spaces"), r.PathValue("name"))
		}
		return status, nil
	}))
	for verb, do := range map[string]func(context.Context, string) error{"wake": spaces.Wake, "sleep": spaces.Sleep, "restart": spaces.Restart} {
		mux.Handle("POST /spaces/{name}/"+verb, control.Answer(func(r *http.Request) (any, error) {
			name := r.PathValue("name")
			timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
			if err != nil {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("timeout: %v", err))
			}
			ctx, cancel := context.WithTimeoutCause(r.Context(), timeout, fmt.Errorf("not done within %s", timeout))
			defer cancel()
			if err := do(ctx, name); errors.Is(err, shard.ErrUnknown) {
				return nil, apierrors.NewNotFound(v1alpha1.Resource("spaces"), name)
			} else if err != nil {
				return nil, err
			}
			status, _ := spaces.Status(name)
			return status, nil
		}))
	}
}
