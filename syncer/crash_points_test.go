// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/resources"
)

const (
	// envCrashPoints is how many crash points TestCrashPoints runs, and envCrashSeed where its random walks begin.
	envCrashPoints, envCrashSeed = "BERTH_CRASH_POINTS", "BERTH_CRASH_SEED"
	// crashesInARow is how many crash points follow each other, at most, before the space has to come to rest.
	crashesInARow = 6
	// crashTimeout bounds the wait for rest after them: each start of a syncer may take [testhost.Timeout] on a busy machine.
	crashTimeout = crashesInARow * testhost.Timeout
	// passed is how many writes are passed over, at most, of resources that have had more than their share of crash points.
	passed = 5
)

// crashTotals are the figures of all walks.
type crashTotals struct {
	mu                                  sync.Mutex
	points, unsent, unanswered, settled int
	want                                int
	until, end                          time.Time      // when no crash is begun any more, and when the last must have been compared; zero means never
	at                                  map[string]int // side and resource
	lost, leaked, duplicated, different int
}

// crashPlan is at which of the next writes the syncer of a walk is to crash.
type crashPlan struct {
	mu     sync.Mutex
	random *rand.Rand
	left   int // crash points
	after  int // writes, until the next
	over   int // writes that were passed over since then
	totals *crashTotals
}

func (p *crashPlan) begin(points int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.after = points, p.random.IntN(5)
}

// due reports whether a syncer crashes at this write, and how.
func (p *crashPlan) due(c call) (how crashMode, due bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == 0 {
		return "", false
	}
	if p.after > 0 {
		p.after--
		return "", false
	}
	if p.over < passed && p.totals.often(c) {
		p.over++
		return "", false
	}
	p.left--
	p.after, p.over = p.random.IntN(5), 0
	how = []crashMode{unsent, unanswered}[p.random.IntN(2)]
	p.totals.count(c, how)
	return how, true
}

func (t *crashTotals) count(c call, how crashMode) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.points++
	if how == unsent {
		t.unsent++
	} else {
		t.unanswered++
	}
	t.at[c.place()]++
}

// often reports whether more crash points were at writes like this one than the mean of all.
func (t *crashTotals) often(c call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at[c.place()]*len(t.at) > t.points
}

func (t *crashTotals) done() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.points >= t.want || !t.until.IsZero() && time.Now().After(t.until)
}

// share divides the time up to the test runner's deadline: for what comes after the last crash as much as it may take at
// the most, but never more than half.
func (t *crashTotals) share(now, deadline time.Time) {
	rest := min(crashTimeout+testhost.Timeout, deadline.Sub(now)/2)
	t.until, t.end = deadline.Add(-rest), deadline.Add(-rest/5)
}

func (t *crashTotals) String() string {
	var at []string
	for _, resource := range slices.Sorted(maps.Keys(t.at)) {
		at = append(at, fmt.Sprintf("%s %d", resource, t.at[resource]))
	}
	return fmt.Sprintf("crash points: %d (%d before the write was applied, %d after), compared %d times\nat: %s\nlost %d, leaked %d, duplicated %d, different %d",
		t.points, t.unsent, t.unanswered, t.settled, strings.Join(at, ", "), t.lost, t.leaked, t.duplicated, t.different)
}

// place is the side and the resource of a write. The Secrets that return, which controllers of the host write, have one of their own there.
func (c call) place() string {
	if c.to == toHost && strings.Contains(c.URL.Path, declaration.ReturnedMark) {
		return returnedOnHost
	}
	return c.to + " " + resourceOf(c.URL.Path)
}

const returnedOnHost = toHost + " returned secrets"

// resourceOf is the plural of a URL's path.
func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	parts = parts[min(map[string]int{"api": 2, "apis": 3}[parts[0]], len(parts)-1):]
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	return parts[0]
}

// S7: whatever a tenant and the host's admin do, with every resource of the table enabled, and others declared: a syncer that is killed at
// any write, to the host or to the space, before or after it is applied, and is started again on the same space and host,
// loses, leaks and duplicates nothing.
func TestCrashPoints(t *testing.T) {
	t.Parallel()
	totals := &crashTotals{want: 300, at: map[string]int{}}
	seed, lanes := uint64(1), 4
	if n, err := strconv.Atoi(os.Getenv(envCrashPoints)); err == nil {
		totals.want, seed, lanes = n, uint64(time.Now().UnixNano()), 8
	}
	if n, err := strconv.ParseUint(os.Getenv(envCrashSeed), 10, 64); err == nil {
		seed = n
	}
	if deadline, ok := t.Deadline(); ok {
		totals.share(time.Now(), deadline)
	}
	t.Logf("%s=%d", envCrashSeed, seed)
	t.Run("walks", func(t *testing.T) {
		for lane := range lanes {
			t.Run(fmt.Sprint(lane), func(t *testing.T) {
				t.Parallel()
				crashWhileWalking(t, fmt.Sprintf("crash-%d", lane), seed+uint64(lane), totals)
			})
		}
	})
	t.Log(totals)
	asked := totals.want
	if os.Getenv(envCrashPoints) == "" {
		asked /= 10 // a busy machine does what it can beside all other tests
	}
	if totals.points < asked && !t.Failed() {
		t.Errorf("time was up after %d crash points of %d", totals.points, asked)
	}
	if totals.want >= 5000 { // enough for each to have had its share
		for _, k := range resources.Table() {
			if k.Direction == resources.InSpace {
				continue
			}
			side := map[resources.Direction]string{resources.ToHost: toHost, resources.FromHost: toSpace}[k.Direction]
			if resource := strings.TrimPrefix(k.Name, "own"); totals.at[side+" "+resource] == 0 {
				t.Errorf("no crash point was at a write of %s to the %s", resource, side)
			}
		}
		for _, at := range []string{toHost + " " + sentTickets, toSpace + " " + sentTickets, toHost + " " + passes, toSpace + " " + passes,
			returnedOnHost, toSpace + " " + resources.Secrets, toSpace + " " + shownTickets} {
			if totals.at[at] == 0 {
				t.Errorf("no crash point was at a write of what is declared: %s", at)
			}
		}
	}
}

func crashWhileWalking(t *testing.T, lane string, seed uint64, totals *crashTotals) {
	w := newCrashWalk(t, lane, seed)
	pods := w.logPods()
	plan := &crashPlan{random: rand.New(rand.NewPCG(seed, 11)), totals: totals}
	plan.begin(crashesInARow)
	w.supervise(func(run *syncerRun) rule {
		return func(c call, send func() (*http.Response, error)) (*http.Response, error) {
			if !slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}, c.Method) {
				return send()
			}
			how, due := plan.due(c)
			if !due {
				return send()
			}
			if how == unanswered {
				if resp, err := send(); err == nil {
					_ = resp.Body.Close()
				}
			}
			run.crash()
			return nil, errCut
		}
	}, func() bool { return false })
	for round := 0; !totals.done() && !t.Failed(); round++ {
		for range 5 + w.random.IntN(8) {
			w.step(t.Context())
			w.check(w.process(t.Context()))
		}
		if round%15 == 7 {
			if err := w.move(t.Context()); err != nil {
				t.Error(err)
			}
		}
		w.settle(totals, round)
		w.forgetEvents()
		if err := pods.twice(); err != nil {
			t.Error(err)
			totals.duplicated++
		}
		plan.begin(1 + w.random.IntN(crashesInARow))
	}
	plan.begin(0)
}

// forgetEvents deletes what the host says of the space's pods: each new syncer reads all of it, and an hour of it is kept.
func (w *crashWalk) forgetEvents() {
	err := w.host.CoreV1().Events(w.space.HostNamespace()).DeleteCollection(w.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil && w.t.Context().Err() == nil {
		w.t.Errorf("delete the host's events: %v", err)
	}
}

// settle waits until the space and its host namespace are alike, and counts what is wrong if they never are.
func (w *crashWalk) settle(totals *crashTotals, round int) {
	var last *crashDiff
	var err error
	end := time.Now().Add(crashTimeout)
	if !totals.end.IsZero() && totals.end.Before(end) {
		end = totals.end
	}
	for ; time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if !w.quiet() {
			continue
		}
		w.check(w.process(w.t.Context()))
		if last, err = w.compare(w.t.Context()); meta.IsNoMatchError(err) {
			w.inSpace = extended(w.t, w.toPlane()) // it has looked before all definitions of the group were there
		} else if err == nil && last.ok() {
			totals.mu.Lock()
			totals.settled++
			totals.mu.Unlock()
			return
		}
		time.Sleep(80 * time.Millisecond) //nolint:forbidigo // A comparison costs more than what it waits for.
	}
	w.t.Errorf("round %d: %v, %v", round, err, last)
	totals.mu.Lock()
	defer totals.mu.Unlock()
	if last == nil { // no syncer came to rest
		totals.different++
		return
	}
	totals.lost += len(last.lost)
	totals.leaked += len(last.leaked)
	totals.duplicated += len(last.duplicated)
	totals.different += len(last.different) + len(last.unsettled)
}

// quiet reports whether a syncer is there and has nothing to do.
func (w *crashWalk) quiet() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.run != nil && w.run.syncer.Idle()
}
