// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage/etcd3"
)

// askingDecoder asks a webhook for each object.
type askingDecoder struct {
	etcd3.Decoder
	asked int
}

func (d *askingDecoder) DecodeListItem(context.Context, []byte, uint64, func() runtime.Object) (runtime.Object, error) {
	d.asked++
	return &corev1.Pod{}, nil
}

// L3: nobody waits for the rest of a list whose request has ended.
func TestHostileAListEndsWithItsRequest(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	next := &askingDecoder{}
	decoder := accountedDecoder{next}
	newPod := func() runtime.Object { return &corev1.Pod{} }
	if _, err := decoder.DecodeListItem(ctx, nil, 0, newPod); err != nil || next.asked != 1 {
		t.Fatalf("an object of a list: %v", err)
	}
	cancel()
	if _, err := decoder.DecodeListItem(ctx, nil, 0, newPod); !errors.Is(err, context.Canceled) || next.asked != 1 {
		t.Errorf("an object of a list whose client has gone: %v, want that it isn't decoded", err)
	}
}
