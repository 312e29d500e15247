// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/identity"
)

// Z4, Z5: the index finds the grants that are for a client, in their order, and no others.
func TestSetsFindTheGrantsOfAClient(t *testing.T) {
	now := time.Unix(100, 0)
	names := func(t *rapid.T, what string) []string {
		return rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3).Draw(t, what)
	}
	tenant := rapid.SampledFrom([]string{"", "solar", "lunar"})
	rapid.Check(t, func(t *rapid.T) {
		var grants []access.Grant
		for i := range rapid.IntRange(0, 8).Draw(t, "grants") {
			g := access.Grant{Source: fmt.Sprint(i)}
			for range rapid.IntRange(0, 3).Draw(t, "subjects") {
				g.Subjects = append(g.Subjects, access.GrantSubject{Tenant: tenant.Draw(t, "tenant"), Users: names(t, "users"), Groups: names(t, "groups"), Both: rapid.Bool().Draw(t, "both")})
			}
			if rapid.Bool().Draw(t, "expires") {
				at := metav1.Unix(rapid.Int64Range(99, 101).Draw(t, "at"), 0)
				g.Expires = &at
			}
			grants = append(grants, g)
		}
		c := access.Client{Tenant: tenant.Draw(t, "of"), Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"), Groups: names(t, "in")}
		var want, got []string
		for i := range grants {
			if grants[i].For(c, now) {
				want = append(want, grants[i].Source)
			}
		}
		set := access.NewSet(grants)
		for _, g := range set.For(c, now) {
			got = append(got, g.Source)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v has %v of %+v, want %v", c, got, grants, want)
		}
		data, err := json.Marshal([]*access.Set{set})
		var read []*access.Set
		if err != nil || json.Unmarshal(data, &read) != nil || !set.Equal(read[0]) || len(read[0].For(c, now)) != len(want) {
			t.Fatalf("%s is read as %+v (%v)", data, read, err)
		}
	})
}

func TestSetsAreEqualIfTheyGrantTheSame(t *testing.T) {
	of := func(tenant string) *access.Set {
		return access.NewSet([]access.Grant{readPods(access.GrantSubject{Tenant: tenant})})
	}
	if a := of("lunar"); !a.Equal(of("lunar")) || a.Equal(of("mars")) || a.Equal(nil) || (*access.Set)(nil).Equal(a) || !access.NewSet(nil).Equal(nil) {
		t.Error("sets are not equal exactly if they grant the same")
	}
}

// L1: requests of somebody whom no line is about cost the same, however many lines there are for others.
func TestManyGrantsOfOthersCostARequestLittle(t *testing.T) {
	lines := make([]access.Grant, 10_000)
	for i := range lines {
		lines[i] = readPods(access.GrantSubject{Tenant: "lunar", Users: []string{fmt.Sprint("user-", i)}, Both: true})
	}
	s := &access.Source{}
	s.Set(&access.State{Space: "solar", Tenant: "solar", Granted: []*access.Set{access.NewSet(lines)}})
	bob := access.UserOf((&identity.Identity{Name: "bob", Tenant: "lunar"}).AsVisitor())
	own := access.UserOf(&identity.Identity{Name: "user-1", Tenant: "solar"})
	now := time.Now()
	for _, u := range []user.Info{bob, own} {
		best := time.Hour
		for range 10 {
			began := time.Now()
			for range 20 {
				s.Authorize(podsIn(u, "get", "web"), now)
			}
			best = min(best, time.Since(began)/20)
		}
		if best > 200*time.Microsecond {
			t.Errorf("a request of %s is decided on in %s", u.GetName(), best)
		}
	}
}
