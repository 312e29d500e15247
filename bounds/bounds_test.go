// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package bounds_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/berth-dev/berth/bounds"
)

// L3: every limit has a row in the reference page, and the page has no other.
func TestTheReferencePageListsEveryLimit(t *testing.T) {
	const path = "../docs/reference/limits.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text, update := string(page), os.Getenv("UPDATE_DOCS") != ""
	for _, scope := range []bounds.Scope{bounds.PerSpace, perTenant, bounds.PerObject} {
		begin, end := fmt.Sprintf("<!-- limits per %s -->\n", scope), fmt.Sprintf("<!-- end of limits per %s -->", scope)
		before, rest, found := strings.Cut(text, begin)
		have, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			t.Fatalf("%s lacks the line %q or %q", path, begin, end)
		}
		want := table(scope)
		if have != want && !update {
			t.Errorf("%s lacks this table; run UPDATE_DOCS=1 go test ./bounds:\n%s", path, want)
		}
		text = before + begin + want + end + after
	}
	if update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // a page to read
			t.Fatal(err)
		}
	}
}

// perTenant is a table of the page for limits of all spaces of a tenant together.
const perTenant bounds.Scope = "tenant"

func table(scope bounds.Scope) string {
	var b strings.Builder
	if scope == perTenant {
		b.WriteString("\n| limit | default |\n|---|---|\n")
		for _, q := range bounds.OfTenants() {
			row := q.Bound()
			row.Default = bounds.TenantLimits(nil).Of(q)
			fmt.Fprintf(&b, "| `%s` | %s |\n", row.Name, inUnits(row))
		}
		return b.String() + "\n"
	}
	b.WriteString("\n| limit | default | what is counted | what to do |\n|---|---|---|---|\n")
	for _, row := range bounds.Table() {
		if row.Scope == scope {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", row.Name, inUnits(row), row.Counts, row.Remedy)
		}
	}
	return b.String() + "\n"
}

func inUnits(b bounds.Bound) string {
	if b.Unit == "bytes" && b.Default%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", b.Default>>20)
	}
	return fmt.Sprintf("%d %s", b.Default, b.Unit)
}

func TestEveryLimitSaysWhatItCountsAndWhatToDo(t *testing.T) {
	names := map[string]bool{}
	for q, b := range bounds.Table() {
		if b.Name == "" || b.Unit == "" || b.Default <= 0 || b.Counts == "" || b.Remedy == "" || b.Scope == "" {
			t.Errorf("row %d is incomplete: %+v", q, b)
		}
		if names[b.Name] {
			t.Errorf("two limits are called %s", b.Name)
		}
		names[b.Name] = true
	}
}

// L3: however many take at once, no more than the limit is in use.
func TestAnAccountIsNeverOverdrawn(t *testing.T) {
	a := bounds.NewAccount(bounds.Limits{bounds.Watches: 10})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if err := a.Take(bounds.Watches, 3); err != nil {
					if !errors.Is(err, bounds.ErrExceeded) {
						t.Error(err)
					}
					continue
				}
				a.Give(bounds.Watches, 3)
			}
		})
	}
	wg.Wait()
	if used := a.Used(bounds.Watches); used != 0 {
		t.Errorf("%d are in use after all were given back", used)
	}
	if err := a.Take(bounds.Watches, 10); err != nil {
		t.Error(err)
	}
	err := a.Take(bounds.Watches, 1)
	const want = "the space's limit watches is reached: 1 watches asked, 10 of 10 in use: " +
		"end watches that are not used, and watch whole resources instead of single objects"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestNoAccountBoundsNothing(t *testing.T) {
	var a *bounds.Account
	if err := a.Take(bounds.MemoryBytes, 1<<50); err != nil {
		t.Error(err)
	}
	a.Give(bounds.MemoryBytes, 1<<50)
	if a.Usage() != nil {
		t.Error("no account has a usage")
	}
}

// What goes on after its request is stopped where it would use more, and what was counted for the request stays until the
// last part of its work has ended.
func TestHostileWorkThatOutlivesItsRequest(t *testing.T) {
	a := bounds.NewAccount(nil)
	r := a.Reserve(bounds.MemoryBytes, 1<<20)
	var work bounds.Work
	work.Begin()
	work.AtEnd(r.End)
	if !work.Begin() {
		t.Fatal("a second part does not begin")
	}
	work.Done()
	if err := r.Grow(5); err != nil || a.Used(bounds.MemoryBytes) != 5 {
		t.Fatalf("with a part under way: %v, %d used", err, a.Used(bounds.MemoryBytes))
	}
	work.Done()
	if err := r.Grow(5); err == nil || a.Used(bounds.MemoryBytes) != 0 {
		t.Errorf("after the end: %v, %d used", err, a.Used(bounds.MemoryBytes))
	}
	if work.Begin() {
		t.Error("a part begins after the end")
	}
}

// L3: what is given back of a part is what was taken by way of it, whatever is taken of the whole meanwhile.
func TestAPartGivesBackItsOwn(t *testing.T) {
	a := bounds.NewAccount(bounds.Limits{bounds.MemoryBytes: 100})
	whole := a.Reserve(bounds.MemoryBytes, 0)
	part, other := whole.Part(), whole.Part()
	for r, n := range map[*bounds.Reservation]int64{whole: 5, part: 20, other: 30} {
		if err := r.Grow(n); err != nil {
			t.Fatal(err)
		}
	}
	var exceeded *bounds.ExceededError
	if err := part.Grow(60); !errors.As(err, &exceeded) || !exceeded.Alone {
		t.Errorf("a part of a request that is too large gets %v", err)
	}
	part.End()
	if err := part.Grow(1); err == nil {
		t.Error("a part grows after its end")
	}
	if held, used := whole.Held(), a.Used(bounds.MemoryBytes); held != 35 || used != 35 {
		t.Errorf("%d are held, %d in use, after 20 of 55 were given back", held, used)
	}
	whole.End()
	other.End()
	if used := a.Used(bounds.MemoryBytes); used != 0 {
		t.Errorf("%d are in use after the end", used)
	}
	var none *bounds.Reservation
	none.Part().End()
}
