// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/platform/specs"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/vcluster/accessreview"
)

// T9, X4: the process of a dedicated space is told all that this one was told.
func TestADedicatedSpacesProcessIsToldTheSame(t *testing.T) {
	told := &Dedicated{Space: "own", Closed: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Endpoint: "https://berth.example", Listen: dedicated.Addresses{API: ":1", Commands: ":2"}, Options: Options{
		DataDir: "/data", EmulatedVersion: "1.36", Pods: Pods{Address: "192.0.2.1", APIPort: 1, DNSPort: 2, Upstreams: []string{"192.0.2.2"}, HostDomain: "d", Namespace: "platform", Selector: "app=berth"},
		Traces: Traces{Endpoint: "127.0.0.1:4317", PerMillion: 7}, Authorizer: accessreview.Config{Kubeconfig: []byte("{}"), Version: "v1", Allowed: time.Minute, Unallowed: time.Second}, Options: specs.Options{
			IdleAfter: time.Minute, Spaces: []v1alpha1.Space{{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Spec: v1alpha1.SpaceSpec{Isolation: v1alpha1.Dedicated, Limits: map[string]resource.Quantity{"watches": resource.MustParse("5")}}}},
			AllowedSync:        []v1alpha1.SyncOption{{Resource: "nodes", Value: "standins"}},
			SpaceDefaults:      v1alpha1.SpaceSpec{Sync: []v1alpha1.SyncOption{{Resource: "priorityclasses", Value: "tier=a,x in (a,b)"}}},
			IngressAnnotations: []string{"example.com/a"}, ReservedLabels: []string{"example.com"}, ShowNodeAddresses: true, SnapshotDestinations: []string{"file:///backups"}, KubernetesVersion: "1.36",
		}}}
	if err := unset(reflect.ValueOf(*told)); err != nil {
		t.Fatalf("the test tells it too little: %v", err)
	}
	file := filepath.Join(t.TempDir(), "config.json")
	if err := told.Write(file); err != nil {
		t.Fatal(err)
	}
	read, err := ReadDedicated(file)
	if err != nil {
		t.Fatal(err)
	}
	if limits := read.Specs.Limits("own"); limits[bounds.Watches] != 5 {
		t.Errorf("its limits are %v", limits)
	}
	wrote, _ := json.Marshal(told)
	if reads, _ := json.Marshal(read); string(reads) != string(wrote) {
		t.Errorf("it reads %s, was told %s", reads, wrote)
	}
}

// unset names an exported field of a struct, or of one in it that is told, that is zero.
func unset(v reflect.Value) error {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch {
		case !f.IsExported(), f.Tag.Get("json") == "-":
		case f.Type.Kind() == reflect.Struct && f.Type.PkgPath() == v.Type().PkgPath(), f.Type == reflect.TypeFor[specs.Options]():
			if err := unset(v.Field(i)); err != nil {
				return err
			}
		case v.Field(i).IsZero():
			return fmt.Errorf("%s is zero", f.Name)
		}
	}
	return nil
}
