// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"time"

	"github.com/berth-dev/berth/bench/internal/side"
)

// settings are the command's flags.
type settings struct {
	only     string
	host     string // path of a kubeconfig
	profiles string // directory

	space    string // name of one that runs already
	spaceAt  string // path of its kubeconfig
	podImage string
	grace    int64 // seconds

	apart   bool
	repeats int

	spaces        int
	idleSpaces    int
	stockSpaces   int
	asleep        int
	wakes         int
	restartSpaces int
	settle        time.Duration
	idle          time.Duration

	writers  int
	writeFor time.Duration
	pods     int
	burst    int
	bursters int
	list     int
	rate     int
	watchers int
	watchFor time.Duration

	requests    int
	many        int
	manySpaces  int
	quietSpaces int
	noisyFor    time.Duration
	tenants     int
	crds        int
	crdSpaces   int
	shareSpaces int
	custom      int

	moves         int
	moveMiB       int
	upgradeSpaces int
	failovers     int
	sleepers      int

	soak       bool
	soakFor    time.Duration
	soakSpaces int
}

func (s *settings) flags() *flag.FlagSet {
	f := flag.NewFlagSet("bench", flag.ExitOnError)
	f.StringVar(&s.only, "only", "", "measure only these: `NAMES` of measures or of their groups, by their beginning, with commas between")
	f.StringVar(&s.host, "host-kubeconfig", "", "kubeconfig `FILE` of the host cluster; an embedded one is started in a process of its own if empty")
	f.StringVar(&s.profiles, "profiles", "", "`DIR` to keep the profiles in, for go tool pprof")
	f.StringVar(&s.space, "space", "", "measure pods of this `SPACE` on a real cluster, which -space-kubeconfig and -host-kubeconfig reach")
	f.StringVar(&s.spaceAt, "space-kubeconfig", "", "kubeconfig `FILE` of -space")
	f.StringVar(&s.podImage, "pod-image", "", "`IMAGE` of the pods, which must run until it is stopped; the simulated nodes take any")
	f.Int64Var(&s.grace, "grace", 0, "how many seconds pods have to stop")
	f.BoolVar(&s.apart, "apart", false, "give the host a processor of its own, as if it ran on other machines than Berth; for pods, burst, and many")
	f.IntVar(&s.repeats, "repeats", 5, "how often to measure rates, in turn with the peer; the median counts")
	f.IntVar(&s.spaces, "spaces", 50, "how many awake spaces the slope is taken over")
	f.IntVar(&s.idleSpaces, "idle-spaces", 100, "how many awake spaces are idle when CPU is measured, at least -spaces")
	f.IntVar(&s.stockSpaces, "stock-spaces", 4, "how many stock API servers their slope is taken over")
	f.IntVar(&s.asleep, "asleep", 1000, "how many sleeping spaces the slope is taken over; each was awake once")
	f.IntVar(&s.wakes, "wakes", 50, "how many times to wake a space")
	f.IntVar(&s.restartSpaces, "restart-spaces", 500, "how many spaces there are when Berth is started again")
	f.DurationVar(&s.settle, "settle", 90*time.Second, "how long at most to wait until a process at rest is steady")
	f.DurationVar(&s.idle, "idle", time.Minute, "how long to average idle CPU over")
	f.IntVar(&s.writers, "writers", 50, "how many clients write at once")
	f.DurationVar(&s.writeFor, "write-for", 6*time.Second, "how long they write in each repeat")
	f.IntVar(&s.pods, "pods", 1000, "how many pods to create one by one each way, through a space and directly")
	f.IntVar(&s.burst, "burst", 300, "how many pods to create at once each way")
	f.IntVar(&s.bursters, "burst-clients", 10, "how many clients create them")
	f.IntVar(&s.list, "list", 5000, "how many pods to list")
	f.IntVar(&s.rate, "watch-rate", 200, "writes a second while watch latency is measured")
	f.IntVar(&s.watchers, "watchers", 10, "how many watches are open then")
	f.DurationVar(&s.watchFor, "watch-for", 15*time.Second, "how long watch latency is measured")
	f.IntVar(&s.requests, "requests", 8000, "how many requests go each way, through the gateway and to the handler of a space")
	f.IntVar(&s.many, "many", 10000, "how many pods to create in many spaces, and directly")
	f.IntVar(&s.manySpaces, "many-spaces", 100, "how many spaces they are in")
	f.IntVar(&s.quietSpaces, "quiet-spaces", 20, "how many spaces do light work beside a noisy one")
	f.DurationVar(&s.noisyFor, "noisy-for", 15*time.Second, "how long they do that in each of 8 rounds, with noise and without")
	f.IntVar(&s.tenants, "tenants", 1000, "how many tenants there are in a tree")
	f.IntVar(&s.crds, "crds", 20, "how many CustomResourceDefinitions to create in each space")
	f.IntVar(&s.crdSpaces, "crd-spaces", 100, "how many awake spaces have them")
	f.IntVar(&s.shareSpaces, "share-spaces", 500, "how many spaces a CustomResourceDefinition of the host is shared with")
	f.IntVar(&s.custom, "custom", 200, "how many custom resources a tenant creates that are synced to the host")
	f.IntVar(&s.moves, "moves", 10, "how often a space moves between two shards")
	f.IntVar(&s.moveMiB, "move-mib", 100, "how many MiB of objects it has")
	f.IntVar(&s.upgradeSpaces, "upgrade-spaces", 50, "how many spaces are used while their shards restart")
	f.IntVar(&s.failovers, "failovers", 5, "how often a shard is killed for each type of store")
	f.IntVar(&s.sleepers, "sleepers", 10000, "how many sleeping spaces a shard starts with")
	f.BoolVar(&s.soak, "soak", false, "measure nothing; create, use, sleep, wake and delete spaces, and fail if something leaks")
	f.DurationVar(&s.soakFor, "duration", 10*time.Minute, "how long to soak, with all that is deleted in the end")
	f.IntVar(&s.soakSpaces, "soak-spaces", 200, "how many spaces there are while soaking")
	return f
}

// check says which flag makes no sense.
func (s *settings) check() error {
	for name, n := range map[string]int{
		"-repeats": s.repeats, "-spaces": s.spaces, "-stock-spaces": s.stockSpaces, "-asleep": s.asleep, "-wakes": s.wakes, "-restart-spaces": s.restartSpaces,
		"-writers": s.writers, "-pods": s.pods, "-burst": s.burst, "-burst-clients": s.bursters,
		"-list": s.list, "-watch-rate": s.rate, "-watchers": s.watchers, "-soak-spaces": s.soakSpaces, "-many-spaces": s.manySpaces, "-quiet-spaces": s.quietSpaces, "-tenants": s.tenants, "-requests": s.requests,
		"-crds": s.crds, "-crd-spaces": s.crdSpaces, "-share-spaces": s.shareSpaces, "-custom": s.custom,
		"-moves": s.moves, "-move-mib": s.moveMiB, "-upgrade-spaces": s.upgradeSpaces, "-failovers": s.failovers,
	} {
		if n < 1 {
			return fmt.Errorf("%s is %d: want at least 1", name, n)
		}
	}
	if err := s.checkCluster(); err != nil {
		return err
	}
	if s.many < manyRounds {
		return fmt.Errorf("-many is %d: want at least %d", s.many, manyRounds)
	}
	if s.quietSpaces >= side.MaxTenants {
		return fmt.Errorf("-quiet-spaces is %d: want less than %d", s.quietSpaces, side.MaxTenants)
	}
	if s.custom > mostCustom {
		return fmt.Errorf("-custom is %d: want at most %d", s.custom, mostCustom)
	}
	if s.shareSpaces <= sharedAwake {
		return fmt.Errorf("-share-spaces is %d: want more than %d, which are awake", s.shareSpaces, sharedAwake)
	}
	if s.sleepers <= templates {
		return fmt.Errorf("-sleepers is %d: want more than %d, which are copied", s.sleepers, templates)
	}
	if s.noisyFor < quietEvery {
		return fmt.Errorf("-noisy-for is %s: want at least %s", s.noisyFor, quietEvery)
	}
	if s.idleSpaces < s.spaces {
		return fmt.Errorf("-idle-spaces is %d: want at least -spaces, %d", s.idleSpaces, s.spaces)
	}
	return nil
}
