// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spaceprocess

import (
	"os"
	"path/filepath"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/internal/testcrd"
)

// C2, C5: a process that starts again has the definitions that the platform sent last, and keeps none that it can't read.
func TestSharedDefinitionsOutliveTheProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func() (*sharedDefinitions, *definitions.Set, error) {
		s, err := openDefinitions(dir)
		set, _ := s.source.Watch()
		return s, set, err
	}
	s, set, err := open()
	if err != nil || set.Version() != "" {
		t.Fatalf("a new process has %q (%v)", set.Names(), err)
	}
	crd, err := definitions.Serve(testcrd.New("example.com", "Gadget", &apiextensionsv1.JSONSchemaProps{Type: "object"}), "share")
	if err != nil {
		t.Fatal(err)
	}
	sent := definitions.NewSet("", &definitions.Shared{CRD: crd, Forced: true, InRange: true})
	data, err := definitions.Encode(sent)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.set([]byte("[{}]")); err == nil {
		t.Error("it takes what it can't read")
	}
	if err := s.set(data); err != nil {
		t.Fatal(err)
	}
	if now, _ := s.source.Watch(); now.Version() != sent.Version() {
		t.Errorf("it has %q", now.Names())
	}
	if _, set, err = open(); err != nil || set.Version() != sent.Version() {
		t.Errorf("after a restart it has %q (%v)", set.Names(), err)
	}
	if err := os.WriteFile(filepath.Join(dir, DefinitionsFile), []byte("["), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, set, err = open(); err == nil || set.Version() != "" {
		t.Errorf("with a damaged file it has %q (%v)", set.Names(), err)
	}
}
