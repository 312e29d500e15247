// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bench/internal/leak"
	"github.com/berth-dev/berth/bench/internal/probe"
	"github.com/berth-dev/berth/bench/internal/side"
)

const (
	// soakWorkers are the spaces that are created or woken at once.
	soakWorkers = 4
	// soakRemovers are the spaces that are deleted at once, which is for the most part to wait for the host.
	soakRemovers = 40
	// soakShare is the share of the spaces that a round wakes, and anewShare the share of these that it deletes and creates anew.
	soakShare, anewShare = 0.2, 0.25
	// leastRounds have to be: of fewer, nothing is seen to grow.
	leastRounds = 3
)

// fineProfile has heap profiles show also what leaks a few bytes at a time.
const fineProfile = "GODEBUG=memprofilerate=4096"

// errLeak says that the soak found something.
var errLeak = errors.New("something leaks")

// soak is a run that looks for leaks. All spaces sleep whenever it counts what is there.
type soak struct {
	*bench
	berth   *child
	host    *plane
	spaces  []*soakSpace
	created int
}

// runSoak fills a shard with spaces, uses some of them round by round, deletes them all, and judges.
func (b *bench) runSoak(ctx context.Context) (err error) {
	s := &sides{bench: b, running: map[string]*child{}, env: []string{fineProfile}}
	defer func() { err = errors.Join(err, s.endAll()) }()
	k := &soak{bench: b}
	if k.berth, err = s.get(ctx, side.Berth); err != nil {
		return err
	}
	if k.host, err = s.hostPlane(); err != nil {
		return err
	}
	start, err := k.warmUp(ctx)
	if err != nil {
		return err
	}
	filling := time.Now()
	if err := k.fill(ctx); err != nil {
		return err
	}
	emptying := time.Since(filling) // as long as filling, about
	points, profiles, err := k.rounds(ctx, b.started.Add(b.soakFor-emptying))
	if err != nil {
		return err
	}
	if err := k.empty(ctx); err != nil {
		return err
	}
	end, last, err := k.point(ctx)
	if err != nil {
		return err
	}
	return k.judge(points, start.Point, end, profiles, start.profiles, last)
}

// warm is where the soak began.
type warm struct {
	leak.Point
	profiles map[string][]byte
}

// warmUp has some spaces come and go, so that what a process makes once is there.
func (k *soak) warmUp(ctx context.Context) (w warm, err error) {
	k.spaces = k.newSpaces(soakWorkers)
	if err := k.each(ctx, soakWorkers, k.spaces, (*soakSpace).create, (*soakSpace).use, (*soakSpace).sleep); err != nil {
		return w, err
	}
	if err := k.empty(ctx); err != nil {
		return w, err
	}
	w.Point, w.profiles, err = k.point(ctx)
	return w, err
}

// newSpaces names spaces as none was before.
func (k *soak) newSpaces(n int) []*soakSpace {
	spaces := make([]*soakSpace, n)
	for i := range spaces {
		k.created++
		spaces[i] = &soakSpace{child: k.berth, name: fmt.Sprintf("soak-%d", k.created)}
	}
	return spaces
}

func (k *soak) fill(ctx context.Context) error {
	k.say("creating %d spaces with pods, and putting them to sleep", k.soakSpaces)
	k.spaces = k.newSpaces(k.soakSpaces)
	return k.each(ctx, soakWorkers, k.spaces, (*soakSpace).create, (*soakSpace).sleep)
}

// rounds wakes some spaces, uses them and puts them to sleep, deletes some and creates others, again and again until the time
// is over, and returns what there was after each round, and the profiles of the first and the last that count.
func (k *soak) rounds(ctx context.Context, until time.Time) (points []leak.Point, profiles [2]map[string][]byte, err error) {
	for round := 1; round <= leastRounds || time.Now().Before(until); round++ {
		rand.Shuffle(len(k.spaces), func(i, j int) { k.spaces[i], k.spaces[j] = k.spaces[j], k.spaces[i] })
		some := k.spaces[:max(1, int(soakShare*float64(len(k.spaces))))]
		anew := some[:max(1, int(anewShare*float64(len(some))))]
		k.say("round %d: waking %d, of which %d are deleted then and created anew", round, len(some), len(anew))
		if err := k.each(ctx, soakWorkers, some, (*soakSpace).use, (*soakSpace).sleep); err != nil {
			return nil, profiles, err
		}
		if err := k.each(ctx, soakRemovers, anew, (*soakSpace).remove); err != nil {
			return nil, profiles, err
		}
		copy(anew, k.newSpaces(len(anew)))
		if err := k.each(ctx, soakWorkers, anew, (*soakSpace).create, (*soakSpace).sleep); err != nil {
			return nil, profiles, err
		}
		point, taken, err := k.point(ctx)
		if err != nil {
			return nil, profiles, err
		}
		points = append(points, point)
		if round <= 2 { // the first is not warm
			profiles[0] = taken
		}
		profiles[1] = taken
	}
	return points, profiles, nil
}

// empty deletes all spaces.
func (k *soak) empty(ctx context.Context) error {
	k.say("deleting %d spaces", len(k.spaces))
	err := k.each(ctx, soakRemovers, k.spaces, (*soakSpace).remove)
	k.spaces = nil
	return err
}

// each does something to spaces, step by step, some spaces at once.
func (k *soak) each(ctx context.Context, atOnce int, spaces []*soakSpace, steps ...func(*soakSpace, context.Context) error) error {
	errs := make([]error, len(spaces))
	next := make(chan int)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := range next {
				errs[i] = spaces[i].do(ctx, steps)
			}
		})
	}
	for i := range spaces {
		next <- i
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

// point counts what is there once all spaces sleep and all is quiet.
func (k *soak) point(ctx context.Context) (p leak.Point, profiles map[string][]byte, err error) {
	planes := make([]*plane, len(k.spaces))
	for i, s := range k.spaces {
		planes[i] = s.plane
	}
	if p.Footprint, err = k.restAsleep(ctx, k.berth, planes); err != nil {
		return p, nil, err
	}
	if p.Names, err = leak.HostObjects(ctx, k.host.config); err != nil {
		return p, nil, err
	}
	p.HostObjects = len(p.Names)
	k.say("%d spaces sleep: live heap %.1f MiB, %.0f goroutines, %.0f files, %d host objects",
		len(k.spaces), p.HeapMiB, p.Goroutines, p.Files, p.HostObjects)
	profiles, err = k.profile(ctx, k.berth, fmt.Sprintf("soak-%d-%d", k.created, len(k.spaces)))
	return p, profiles, err
}

// judge prints the verdict, and is an error if something leaks.
func (k *soak) judge(points []leak.Point, start, end leak.Point, rounds [2]map[string][]byte, before, after map[string][]byte) error {
	growing, left := leak.Growing(points), leak.Left(start, end)
	first, last := points[min(1, len(points)-1)], points[len(points)-1]
	fmt.Printf("%d rounds with %d spaces, %d created in all: live heap %.1f to %.1f MiB, goroutines %.0f to %.0f, files %.0f to %.0f, host objects %d to %d\n",
		len(points), k.soakSpaces, k.created, first.HeapMiB, last.HeapMiB, first.Goroutines, last.Goroutines, first.Files, last.Files,
		first.HostObjects, last.HostObjects)
	fmt.Printf("all deleted: live heap %.1f to %.1f MiB, goroutines %.0f to %.0f, files %.0f to %.0f, host objects %d to %d\n",
		start.HeapMiB, end.HeapMiB, start.Goroutines, end.Goroutines, start.Files, end.Files, start.HostObjects, end.HostObjects)
	for _, c := range []struct {
		complaints    []string
		before, after map[string][]byte
	}{{growing, rounds[0], rounds[1]}, {left, before, after}} {
		for _, complaint := range c.complaints {
			fmt.Println("LEAK:", complaint)
		}
		if len(c.complaints) == 0 {
			continue
		}
		if err := printGrowth(c.before, c.after); err != nil {
			return err
		}
	}
	if len(growing)+len(left) > 0 {
		return errLeak
	}
	fmt.Println("verdict: nothing leaks")
	return nil
}

// printGrowth prints the stacks that have grown most.
func printGrowth(before, after map[string][]byte) error {
	for _, p := range []struct {
		kind, valueType, unit string
		scale                 float64
	}{{"goroutine", "goroutine", "goroutines", 1}, {"heap", "inuse_space", "KiB", 1.0 / (1 << 10)}} {
		parts, err := grown(before[p.kind], after[p.kind], p.valueType, probe.ByStack)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stdout, "most grown, %s:\n", p.unit)
		for _, part := range parts[:min(reasons, len(parts))] {
			fmt.Fprintf(os.Stdout, "  %8.0f  %s\n", part.Value*p.scale, part.Code)
		}
	}
	return nil
}

const (
	// soakPods are the pods of a space: one of a deployment, one by itself.
	soakPods = 2
	// runTime is how long pods may take to run, or to be gone.
	runTime = 2 * time.Minute
	runPoll = 100 * time.Millisecond
)

// soakSpace is one of the spaces that come and go.
type soakSpace struct {
	child *child
	name  string
	plane *plane
}

// do takes steps until one fails.
func (s *soakSpace) do(ctx context.Context, steps []func(*soakSpace, context.Context) error) error {
	for _, step := range steps {
		if err := step(s, ctx); err != nil {
			return fmt.Errorf("space %s: %w", s.name, err)
		}
	}
	return nil
}

// create creates the space and waits until its pods run on the host.
func (s *soakSpace) create(ctx context.Context) (err error) {
	if s.plane, _, err = s.child.start(ctx, s.name); err != nil {
		return err
	}
	return s.withClient(func(client kubernetes.Interface) error {
		labels := map[string]string{"app": "web"}
		web := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](1),
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: newPod("").Spec},
			},
		}
		_, err := client.AppsV1().Deployments(metav1.NamespaceDefault).Create(ctx, web, metav1.CreateOptions{})
		_, err2 := client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, newPod("one"), metav1.CreateOptions{})
		if err := errors.Join(err, err2); err != nil {
			return fmt.Errorf("create pods: %w", err)
		}
		return running(ctx, client, soakPods)
	})
}

// use wakes the space by a request, finds its pods, and has one more come and go.
func (s *soakSpace) use(ctx context.Context) error {
	return s.withClient(func(client kubernetes.Interface) error {
		if err := running(ctx, client, soakPods); err != nil {
			return err
		}
		pods := client.CoreV1().Pods(metav1.NamespaceDefault)
		if _, err := pods.Create(ctx, newPod("extra"), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create a pod: %w", err)
		}
		if err := running(ctx, client, soakPods+1); err != nil {
			return err
		}
		if err := pods.Delete(ctx, "extra", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
			return fmt.Errorf("delete a pod: %w", err)
		}
		return running(ctx, client, soakPods)
	})
}

// sleep puts the space to sleep.
func (s *soakSpace) sleep(ctx context.Context) error { return s.plane.sleep(ctx) }

// remove deletes the space with all it has on the host.
func (s *soakSpace) remove(ctx context.Context) error {
	return s.child.call(ctx, "Remove", s.name, new(struct{}))
}

// withClient has f use the space by a connection that doesn't outlive it.
func (s *soakSpace) withClient(f func(kubernetes.Interface) error) error {
	client, disconnect, err := s.plane.client()
	if err != nil {
		return err
	}
	defer disconnect()
	return f(client)
}

// running waits until a space has n pods and the host says of all of them that they run.
func running(ctx context.Context, client kubernetes.Interface, n int) error {
	var have []string
	err := wait.PollUntilContextTimeout(ctx, runPoll, runTime, true, func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		have = nil
		run := 0
		for _, pod := range list.Items {
			have = append(have, pod.Name+" "+string(pod.Status.Phase))
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				run++
			}
		}
		return run == n && len(have) == n, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %d running pods, have %v: %w", n, have, err)
	}
	return nil
}
