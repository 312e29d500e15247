// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/snapshot"
)

// taken is a snapshot of a space, which holds a service.
func taken(t *testing.T, s *spaces, bucket *snapshot.Bucket, name string) snapshot.ID {
	t.Helper()
	var service bytes.Buffer
	err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(&corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
	}, &service)
	if err != nil {
		t.Fatal(err)
	}
	s.put(t, name, "/registry/services/specs/default/web", service.String())
	info, err := keeper(t, s, bucket, nil).Take(t.Context(), name, bucket)
	if err != nil {
		t.Fatal(err)
	}
	id, err := snapshot.ParseID(info.ID)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func given(context.Context, *corev1.Service) (*corev1.Service, error) { return &corev1.Service{}, nil }

// D2: a snapshot takes the place of what another space holds, which is kept
// beside it; that one's keys stay, and its clients see that all is another.
func TestASnapshotTakesThePlaceOfAnotherSpace(t *testing.T) {
	s := newSpaces(t, "from", "into")
	bucket := open(t, "file://"+t.TempDir())
	id := taken(t, s, bucket, "from")
	for i := range 3 { // the second is from a store whose revision is behind
		if s.awake["into"] == nil {
			s.wake(t, "into")
		}
		if i == 0 {
			s.put(t, "into", "/registry/configmaps/default/own", "x")
		}
		before := s.Revision("into")
		stop := func(context.Context) error { s.sleep(t, "into"); return nil }
		changes, err := snapshot.Clone(t.Context(), bucket, id, "into", s.dir, t.TempDir(), stop, given)
		if err != nil || changes.Services != 1 {
			t.Fatalf("%+v (%v)", changes, err)
		}
		s.wake(t, "into")
		if first, own := s.get(t, "into", "/registry/configmaps/default/first"), s.get(t, "into", "/registry/configmaps/default/own"); first != "of from" || own != "" {
			t.Errorf("it holds %q and %q", first, own)
		}
		if after := s.Revision("into"); after <= before {
			t.Errorf("its revision was %d, and is %d", before, after)
		}
		if key, err := os.ReadFile(filepath.Join(s.dir, "into", "pki", "ca.key")); err != nil || string(key) != "secret of into" {
			t.Errorf("its key is %q (%v)", key, err)
		}
		if i > 0 {
			continue
		}
		if err := os.Rename(s.path("into")+".replaced", filepath.Join(s.dir, "from", "kept.db")); err != nil {
			t.Fatal(err)
		}
		kept, err := kine.Open(t.Context(), kine.Options{Path: filepath.Join(s.dir, "from", "kept.db")})
		if err != nil {
			t.Fatal(err)
		}
		s.awake["kept"] = kept
		if own := s.get(t, "kept", "/registry/configmaps/default/own"); own != "x" {
			t.Errorf("what it was is not kept: %q", own)
		}
	}
	checkModes(t, filepath.Join(s.dir, "into"))
}

// D2: whatever step of it fails, the space is what it was, and before the
// snapshot was found sound nothing was done to it at all.
func TestASpaceWhosePlaceIsNotTakenIsAsItWas(t *testing.T) {
	s := newSpaces(t, "from", "into", "moved")
	dir := t.TempDir()
	bucket := open(t, "file://"+dir)
	id := taken(t, s, bucket, "from")
	damaged := taken(t, s, bucket, "moved")
	path := filepath.Join(dir, damaged.String()+".tar.zst")
	if err := os.Truncate(path, 1000); err != nil {
		t.Fatal(err)
	}
	s.sleep(t, "into")
	errNo := errors.New("no")
	no := func(context.Context) error { return errNo }
	yes := func(context.Context) error { return nil }
	for reason, c := range map[string]struct {
		id      snapshot.ID
		prepare func(context.Context) error
		reserve snapshot.Reserve
		want    error
	}{
		"the snapshot is damaged":           {damaged, func(context.Context) error { t.Error("prepared for a damaged one"); return nil }, given, snapshot.ErrDamaged},
		"it can't be stopped":               {id, no, given, errNo},
		"the host has no address":           {id, yes, func(context.Context, *corev1.Service) (*corev1.Service, error) { return nil, errNo }, errNo},
		"it woke meanwhile":                 {id, func(ctx context.Context) error { return s.Wake(ctx, "into") }, given, kine.ErrInUse},
		"who asked has gone":                {id, func(context.Context) error { return context.Canceled }, given, context.Canceled},
		"what was kept of it is in the way": {id, yes, given, os.ErrExist},
	} {
		if errors.Is(c.want, os.ErrExist) {
			if err := os.MkdirAll(filepath.Join(s.path("into")+".replaced", "full"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		_, err := snapshot.Clone(t.Context(), bucket, c.id, "into", s.dir, t.TempDir(), c.prepare, c.reserve)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", reason, err, c.want)
		}
		if s.awake["into"] == nil {
			s.wake(t, "into")
		}
		if first := s.get(t, "into", "/registry/configmaps/default/first"); first != "of into" {
			t.Errorf("%s: it holds %q", reason, first)
		}
		s.sleep(t, "into")
		if errors.Is(c.want, os.ErrExist) {
			if err := os.RemoveAll(s.path("into") + ".replaced"); err != nil {
				t.Fatal(err)
			}
		}
	}
}
