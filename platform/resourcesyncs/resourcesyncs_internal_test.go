// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcesyncs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// C6: each sync says what is wrong with it, and those without a problem are in force whatever is wrong with others.
func TestWhatBecomesOfAResourceSync(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	tests := map[string]struct {
		kind            string
		direction       v1alpha1.ResourceSyncDirection
		prepare         func(is *v1alpha1.ResourceSync)
		reason, message string
		unsettled       bool
	}{
		"to the host":   {kind: "Apple", direction: v1alpha1.SyncToHost, reason: v1alpha1.ReasonSyncing, message: "are synced"},
		"from the host": {kind: "Banana", direction: v1alpha1.SyncFromHost, reason: v1alpha1.ReasonSyncing, message: "are synced"},
		"a field that isn't there": {kind: "Cherry", direction: v1alpha1.SyncToHost, prepare: func(is *v1alpha1.ResourceSync) {
			is.Spec.Fields[0].Path = "spec.absent"
		}, reason: v1alpha1.ReasonInvalidSpec, message: "spec.fields[0].path"},
		"all fields that there may be aren't there": {kind: "Date", direction: v1alpha1.SyncToHost, prepare: func(is *v1alpha1.ResourceSync) {
			for i := range 127 {
				is.Spec.Fields = append(is.Spec.Fields, v1alpha1.SyncedField{Path: "spec." + strings.Repeat("ä", 100) + fmt.Sprint(i)})
			}
		}, reason: v1alpha1.ReasonInvalidSpec, message: "..."},
		"the wrong direction": {kind: "Elder", direction: v1alpha1.SyncToHost, prepare: func(is *v1alpha1.ResourceSync) {
			is.Spec.Direction = v1alpha1.SyncFromHost
		}, reason: v1alpha1.ReasonInvalidSpec, message: "spec.direction"},
		"no definition": {kind: "Fig", direction: v1alpha1.SyncToHost, prepare: func(is *v1alpha1.ResourceSync) {
			delete(e.s.versions, is.Name)
		}, reason: v1alpha1.ReasonDefinitionNotFound, message: "create it"},
		"a definition that can't be read": {kind: "Grape", direction: v1alpha1.SyncToHost, prepare: func(is *v1alpha1.ResourceSync) {
			e.unread[is.Name] = errHost
		}, reason: v1alpha1.ReasonDefinitionUnavailable, message: errHost.Error(), unsettled: true},
		"not shared": {kind: "Hazel", direction: v1alpha1.SyncFromHost, prepare: func(is *v1alpha1.ResourceSync) {
			e.share[is.Name] = "no"
		}, reason: v1alpha1.ReasonNotShared, message: "with mode Forced"},
		"nobody knows whether it is shared": {kind: "Imbe", direction: v1alpha1.SyncFromHost, prepare: func(is *v1alpha1.ResourceSync) {
			e.share[is.Name] = "unknown"
		}, reason: v1alpha1.ReasonDefinitionUnavailable, message: "CRDShare", unsettled: true},
		"no policy": {kind: "Jujube", direction: v1alpha1.SyncToHost, prepare: func(is *v1alpha1.ResourceSync) {
			e.secure[is.Name] = func() error { return errMissing }
		}, reason: v1alpha1.ReasonPolicyMissing, message: errMissing.Error()},
		"a policy that can't be read": {kind: "Kiwi", direction: v1alpha1.SyncToHost, prepare: func(is *v1alpha1.ResourceSync) {
			e.secure[is.Name] = func() error { return errHost }
		}, reason: v1alpha1.ReasonPolicyMissing, message: errHost.Error(), unsettled: true},
		"a check that panics": {kind: "Lemon", direction: v1alpha1.SyncToHost, prepare: func(is *v1alpha1.ResourceSync) {
			e.secure[is.Name] = func() error { panic("oh") }
		}, reason: v1alpha1.ReasonInvalidSpec, message: "panic", unsettled: true},
		"objects that aren't known yet": {kind: "Mango", direction: v1alpha1.SyncToHost, prepare: func(is *v1alpha1.ResourceSync) {
			e.unready[is.Name] = errHost
		}, reason: v1alpha1.ReasonHostUnavailable, message: errHost.Error(), unsettled: true},
		"nothing to secure from the host": {kind: "Nut", direction: v1alpha1.SyncFromHost, prepare: func(is *v1alpha1.ResourceSync) {
			e.secure[is.Name] = func() error { return errMissing }
		}, reason: v1alpha1.ReasonSyncing},
	}
	var inForce []string
	syncs := map[string]*v1alpha1.ResourceSync{}
	for what, test := range tests {
		syncs[what] = e.sync(test.kind, test.direction)
		if test.prepare != nil {
			test.prepare(syncs[what])
		}
		if test.reason == v1alpha1.ReasonSyncing {
			inForce = append(inForce, syncs[what].Name)
		}
	}
	slices.Sort(inForce)
	e.s.Observe(space("solar", "solar"))
	e.has("before", "solar")
	if complete, pause := e.update(); complete || pause > pollInterval {
		t.Errorf("with syncs that may soon be in force, all is complete: %v, and it is done again after %s", complete, pause)
	}
	e.has("after", "solar", inForce...)
	if !slices.Equal(e.changed, []string{"solar"}) {
		t.Errorf("these are reported: %q", e.changed)
	}
	for what, test := range tests {
		state := e.s.states[syncs[what].Name]
		got := state.ready()
		if got.Reason != test.reason || !strings.Contains(got.Message, test.message) || (got.Status == metav1.ConditionTrue) != (test.reason == v1alpha1.ReasonSyncing) ||
			got.ObservedGeneration != 1 || len(got.Message) > maxMessage+len("...") || strings.ToValidUTF8(got.Message, "") != got.Message {
			t.Errorf("%s: the condition is %+v", what, got)
		}
		if state.unsettled() != test.unsettled {
			t.Errorf("%s: it is unsettled: %v, want %v", what, state.unsettled(), test.unsettled)
		}
	}
	clear(e.unready)
	e.update()
	inForce = append(inForce, syncs["objects that aren't known yet"].Name)
	slices.Sort(inForce)
	e.has("when they are known", "solar", inForce...)
	if len(e.declared) != 1 || !slices.Equal(e.declared[0], inForce) {
		t.Errorf("the host watches %q, want %q, once", e.declared, inForce)
	}
}

// C6: without rights on the host, nothing is synced to it.
func TestNothingIsSyncedToAHostThatIsNotSecured(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.s.options.Secure = nil
	is := e.sync("Gadget", v1alpha1.SyncToHost)
	e.s.Observe(space("solar", "solar"))
	e.update()
	e.has("without Secure", "solar")
	if got := e.s.states[is.Name].ready(); got.Reason != v1alpha1.ReasonPolicyMissing {
		t.Errorf("the condition is %+v", got)
	}
}

// C6: an error of the host ends no sync. What the host says does.
func TestOnlyWhatTheHostSaysEndsASync(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		change func(e *env, is *v1alpha1.ResourceSync)
		kept   bool
		ready  bool
	}{
		"the definition can't be read":      {func(e *env, is *v1alpha1.ResourceSync) { e.unread[is.Name] = errHost; e.s.versions[is.Name] = "2" }, true, false},
		"the policy can't be read":          {func(e *env, is *v1alpha1.ResourceSync) { e.secure[is.Name] = func() error { return errHost } }, true, false},
		"the check panics":                  {func(e *env, is *v1alpha1.ResourceSync) { e.secure[is.Name] = func() error { panic("oh") } }, true, false},
		"shares are unknown":                {func(e *env, is *v1alpha1.ResourceSync) { e.share[is.Name] = "unknown" }, true, false},
		"the watch fails":                   {func(e *env, is *v1alpha1.ResourceSync) { e.unready[is.Name] = errHost }, true, true},
		"another definition, same content":  {func(e *env, is *v1alpha1.ResourceSync) { e.s.versions[is.Name] = "2" }, true, true},
		"a change, and nothing can be read": {func(e *env, is *v1alpha1.ResourceSync) { e.unread[is.Name] = errHost; e.change(is, addColor) }, true, false},
		"a change, and no watch":            {func(e *env, is *v1alpha1.ResourceSync) { e.undo = errHost; e.change(is, addColor) }, true, false},
		"an invalid spec": {func(e *env, is *v1alpha1.ResourceSync) {
			e.change(is, func(is *v1alpha1.ResourceSync) { is.Spec.Version = "v2" })
		}, false, false},
		"the policy is missing":         {func(e *env, is *v1alpha1.ResourceSync) { e.secure[is.Name] = func() error { return errMissing } }, false, false},
		"the definition is gone":        {func(e *env, is *v1alpha1.ResourceSync) { delete(e.s.versions, is.Name) }, false, false},
		"the share is gone":             {func(e *env, is *v1alpha1.ResourceSync) { e.share[is.Name] = "no" }, false, false},
		"the share is not the tenant's": {func(e *env, is *v1alpha1.ResourceSync) { e.share[is.Name] = "solar" }, false, false},
		"the sync is gone":              {func(e *env, is *v1alpha1.ResourceSync) { delete(e.s.syncs, is.Name) }, false, false},
		"another sync that can't be read": {func(e *env, is *v1alpha1.ResourceSync) {
			e.unread[is.Name] = errHost
			e.change(is, func(is *v1alpha1.ResourceSync) { is.UID = "another" })
		}, false, false},
	} {
		e := newEnv(t)
		is, other := e.sync("Gadget", v1alpha1.SyncToHost), e.sync("Zebra", v1alpha1.SyncFromHost)
		e.s.Observe(space("solar", "solar"))
		if complete, _ := e.update(); !complete {
			t.Fatalf("%s: it is not complete", what)
		}
		e.has(what+": at first", "solar", is.Name, other.Name)
		before := e.s.Of("solar")
		test.change(e, is)
		e.now = e.now.Add(recheck) // policies are checked again
		e.update()
		e.now = e.now.Add(recheck)
		changed := e.changed
		e.update()
		changed = append(changed, e.changed...)
		if test.kept {
			if after := e.s.Of("solar"); !slices.Equal(before, after) || len(changed) > 0 {
				t.Errorf("%s: the space has %q, as it was: %v, and these are reported: %q", what, names(after), slices.Equal(before, after), changed)
			}
			if len(e.declared) != 1 {
				t.Errorf("%s: the host's watches change: %q", what, e.declared)
			}
			if got := e.s.states[is.Name].ready(); (got.Status == metav1.ConditionTrue) != test.ready {
				t.Errorf("%s: the condition is %+v", what, got)
			}
			continue
		}
		e.has(what, "solar", other.Name)
		if !slices.Equal(changed, []string{"solar"}) {
			t.Errorf("%s: these are reported: %q", what, changed)
		}
	}
}

func addColor(is *v1alpha1.ResourceSync) {
	is.Spec.Fields = append(is.Spec.Fields, v1alpha1.SyncedField{Path: "spec.color"})
}

// C6: spaces have the sync as it was until the host's objects of the new one are known.
func TestSpacesSwitchOnce(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	is := e.sync("Gadget", v1alpha1.SyncToHost)
	e.s.Observe(space("solar", "solar"))
	e.update()
	before := e.s.Version("solar")
	e.unready[is.Name] = errHost
	e.change(is, addColor)
	_, pause := e.update()
	if got := e.s.Version("solar"); got != before || len(e.changed) > 0 || pause != pollInterval {
		t.Errorf("while they aren't known, the version is %q, was %q; reported: %q; it is done again after %s", got, before, e.changed, pause)
	}
	if got := e.s.states[is.Name].ready(); got.Reason != v1alpha1.ReasonHostUnavailable || !strings.Contains(got.Message, "keep") || got.ObservedGeneration != 2 {
		t.Errorf("the condition is %+v", got)
	}
	clear(e.unready)
	e.update()
	if got := e.s.Version("solar"); got == before || got == "" || !slices.Equal(e.changed, []string{"solar"}) {
		t.Errorf("when they are known, the version is %q, was %q; reported: %q", got, before, e.changed)
	}
	if len(e.declared) != 2 {
		t.Errorf("the host watches %q", e.declared)
	}
}

// C6: who is selected changes what spaces have, and neither the host's watches nor other spaces.
func TestTenantsAreSelectedAsByShares(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	is, other := e.sync("Gadget", v1alpha1.SyncToHost), e.sync("Aardvark", v1alpha1.SyncFromHost)
	other.Spec.Tenants = []v1alpha1.CRDShareTenants{{Names: []string{"wind"}}}
	all := []string{"alone", "lunar", "solar", "wind"}
	for _, name := range all {
		tenant := name
		if name == "alone" {
			tenant = ""
		}
		e.s.Observe(space(name, tenant))
	}
	check := func(what string, want map[string][]string, reported ...string) {
		t.Helper()
		versions := map[string]string{}
		for _, name := range all {
			versions[name] = e.s.Version(name)
		}
		e.update()
		for _, name := range all {
			e.has(what, name, want[name]...)
			if changed := versions[name] != e.s.Version(name); changed != slices.Contains(reported, name) {
				t.Errorf("%s: the version of %s changes: %v", what, name, changed)
			}
		}
		if !slices.Equal(e.changed, reported) {
			t.Errorf("%s: these are reported: %q, want %q", what, e.changed, reported)
		}
	}
	check("all", map[string][]string{"lunar": {is.Name}, "solar": {is.Name}, "wind": {other.Name, is.Name}}, "lunar", "solar", "wind")
	check("again", map[string][]string{"lunar": {is.Name}, "solar": {is.Name}, "wind": {other.Name, is.Name}})
	e.change(is, func(is *v1alpha1.ResourceSync) {
		is.Spec.Tenants = []v1alpha1.CRDShareTenants{{Names: []string{"solar"}}, {Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"is": "wind"}}}}
	})
	check("some", map[string][]string{"solar": {is.Name}, "wind": {other.Name, is.Name}}, "lunar")
	e.share[is.Name] = "wind"
	check("not shared with all of them", map[string][]string{"solar": {is.Name}, "wind": {other.Name}}, "wind")
	e.change(is, func(is *v1alpha1.ResourceSync) { is.Spec.Tenants = nil })
	check("none", map[string][]string{"wind": {other.Name}}, "solar")
	if len(e.declared) != 1 {
		t.Errorf("the host's watches change: %q", e.declared)
	}
	e.s.Observe(space("solar", "wind"))
	e.has("a space of another tenant, at once", "solar", other.Name)
	e.s.Observe(space("new", "wind"))
	e.has("a new space, at once", "new", other.Name)
	e.update()
	if !slices.Equal(e.changed, []string{"solar"}) {
		t.Errorf("these are reported: %q", e.changed)
	}
	for name := range maps.Clone(e.s.spaces) {
		e.s.Forget(name)
	}
	if len(e.s.spaces) > 0 {
		t.Errorf("of deleted spaces, %d are kept", len(e.s.spaces))
	}
}

// C6: a status is written if it differs, and two platforms that differ don't write all the time.
func TestStatusesAreWrittenIfTheyDiffer(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	is := e.sync("Gadget", v1alpha1.SyncToHost)
	written := func(what string, want int) {
		t.Helper()
		e.statuses = 0
		e.update()
		if e.statuses != want {
			t.Errorf("%s: %d statuses are written, want %d", what, e.statuses, want)
		}
	}
	written("at first", 1)
	written("the watch is behind", 0)
	ready := e.s.states[is.Name].ready()
	seen := func(ready metav1.Condition) {
		is = e.s.syncs[is.Name].DeepCopy()
		is.Status.Conditions, is.Status.ObservedGeneration = []metav1.Condition{ready}, ready.ObservedGeneration
		e.s.syncs[is.Name] = is
	}
	seen(ready)
	written("it is as it is to be", 0)
	e.now = e.now.Add(recheck)
	written("it is checked again", 0)
	e.secure[is.Name] = func() error { return errMissing }
	e.now = e.now.Add(recheck)
	written("it is another one", 1)
	seen(e.s.states[is.Name].ready())
	written("it is as it is to be", 0)
	seen(ready)
	written("another platform has written it", 0)
	e.now = e.now.Add(rewrite)
	written("another platform has written it a while ago", 1)
}

// C6: what a new platform doesn't know yet, a space that runs on keeps.
func TestWhatIsNotKnownYetIsNotEnded(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	is, other := e.sync("Gadget", v1alpha1.SyncToHost), e.sync("Aardvark", v1alpha1.SyncFromHost)
	other.Spec.Tenants = []v1alpha1.CRDShareTenants{{Names: []string{"wind"}}}
	unknown := func(what string, known bool, want ...string) {
		t.Helper()
		if got, all := e.s.Unknown("solar"); !slices.Equal(got, want) || all != known {
			t.Errorf("%s: %q are unknown, want %q; it is known: %v", what, got, want, all)
		}
	}
	unknown("a space that isn't known", false)
	e.s.Observe(space("solar", "solar"))
	clear(e.s.listed)
	unknown("nothing was read", false)
	e.s.listed[listOfSyncs], e.s.listed[listOfDefinitions] = true, true
	unknown("nothing was checked", true, is.Name)
	e.secure[is.Name] = func() error { return errHost }
	e.update()
	unknown("a host that can't be asked", true, is.Name)
	delete(e.secure, is.Name)
	e.unready[is.Name] = errHost
	e.now = e.now.Add(2 * recheck)
	e.update()
	unknown("objects that aren't known", true, is.Name)
	clear(e.unready)
	e.update()
	unknown("it is in force", true)
	e.share[is.Name] = "unknown"
	unknown("a share that isn't known, and that the space has", true)
	e.share[is.Name] = "no"
	e.update()
	unknown("no share", true)
	e.has("no share", "solar")
	delete(e.share, is.Name)
	e.change(is, func(is *v1alpha1.ResourceSync) { is.Spec.Version = "v9" })
	e.update()
	unknown("it is invalid, which ends it", true)
}
