// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/berth-dev/berth/bounds"
)

var errFault = errors.New("fault")

// busyStorage reads 10 bytes for each call, while something else of the same request reads 100.
type busyStorage struct {
	storage.Interface
	t       *testing.T
	request *bounds.Reservation
	err     error
}

func (s busyStorage) read(ctx context.Context) error {
	if err := errors.Join(bounds.ReservationOf(ctx).Grow(10), s.request.Grow(100)); err != nil {
		s.t.Error(err)
	}
	return s.err
}

func (s busyStorage) Delete(
	ctx context.Context, _ string, _ runtime.Object, _ *storage.Preconditions, _ storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions,
) error {
	return s.read(ctx)
}

func (s busyStorage) GuaranteedUpdate(
	ctx context.Context, _ string, _ runtime.Object, _ bool, _ *storage.Preconditions, _ storage.UpdateFunc, _ runtime.Object,
) error {
	return s.read(ctx)
}

func (s busyStorage) GetList(ctx context.Context, _ string, _ storage.ListOptions, _ runtime.Object) error {
	return s.read(ctx)
}

// L3 (S2): the deletion of a collection lists and deletes at the same time. A write, or a list that fails, gives back what
// was read for it, and not what is read beside it.
func TestHostileWhatIsReadBesideAWriteStaysAccounted(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		call func(context.Context, *boundedStorage) error
	}{
		"delete": {nil, func(ctx context.Context, b *boundedStorage) error {
			return b.Delete(ctx, "", nil, nil, nil, nil, storage.DeleteOptions{})
		}},
		"update": {nil, func(ctx context.Context, b *boundedStorage) error {
			return b.GuaranteedUpdate(ctx, "", nil, false, nil, nil, nil)
		}},
		"failing list": {errFault, func(ctx context.Context, b *boundedStorage) error {
			return b.GetList(ctx, "", storage.ListOptions{Predicate: storage.Everything}, &corev1.PodList{})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a := bounds.NewAccount(nil)
			request := a.Reserve(bounds.MemoryBytes, 0)
			b := &boundedStorage{Interface: busyStorage{t: t, request: request, err: c.err}, used: func() (int64, int64) { return 0, 1 << 30 }}
			if err := c.call(bounds.WithReservation(t.Context(), request), b); !errors.Is(err, c.err) {
				t.Fatal(err)
			}
			if held := request.Held(); held != 100 {
				t.Errorf("%d bytes are accounted, want the 100 that are read beside it", held)
			}
			request.End()
		})
	}
}
