// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// load is what clients of a space do while it moves. Each writes, and reads what it has written, one request after the other.
type load struct {
	mu      sync.Mutex
	written map[string]int // the last acknowledged value, by name
	failed  []error
	slowest time.Duration
	count   int
}

// loaded has clients, each of which reaches the space by its own way, make requests until stop is called, or the test ends. It waits until no other
// test does.
func loaded(t *testing.T, clients []*cluster) (l *load, stop func()) {
	t.Helper()
	suite().loading.Lock()
	l = &load{written: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	stop = sync.OnceFunc(func() {
		cancel()
		group.Wait()
		suite().loading.Unlock()
	})
	t.Cleanup(stop)
	for i, client := range clients {
		name := fmt.Sprintf("load-%d-%d", time.Now().UnixNano(), i) // a space may be loaded more than once
		counted := l.counted(t, client)
		group.Go(func() { l.run(t.Context(), ctx.Done(), counted, name) })
	}
	return l, stop
}

// paced returns a configuration of clients that make so few requests that the machine, and other tests, do something else, too.
func paced(client *cluster) *rest.Config {
	config := rest.CopyConfig(client.config)
	config.QPS, config.Burst = 10, 5
	return config
}

// counted returns a client whose requests count as failed if it has to repeat them. Clients of Kubernetes do that by themselves, and then
// return no error.
func (l *load) counted(t *testing.T, client *cluster) *cluster {
	t.Helper()
	config := paced(client)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return countedRequests{next, l} })
	return &cluster{Interface: must(kubernetes.NewForConfig(config))(t), config: config}
}

type countedRequests struct {
	http.RoundTripper
	load *load
}

// RoundTrip implements [http.RoundTripper].
func (c countedRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.RoundTripper.RoundTrip(r)
	if err != nil {
		c.load.note("", 0, 0, err)
	} else if response.StatusCode >= http.StatusInternalServerError || response.StatusCode == http.StatusTooManyRequests {
		c.load.note("", 0, 0, fmt.Errorf("%s %s: %s", r.Method, r.URL, response.Status))
	}
	return response, err
}

// seen is what a watch has of the objects of a load: the last value, by name.
type seen struct {
	mu   sync.Mutex
	last map[string]int
	errs []error
}

// watched follows the objects of a load, each change of which it must get once, until the test ends. It watches again from where it was if
// the connection ends, as clients do.
func watched(t *testing.T, client *cluster) *seen {
	t.Helper()
	maps := client.CoreV1().ConfigMaps("default")
	list := must(maps.List(t.Context(), metav1.ListOptions{}))(t)
	watcher := must(watchtools.NewRetryWatcherWithContext(t.Context(), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return maps.Watch(ctx, o) },
	}))(t)
	w := &seen{last: map[string]int{}}
	var group sync.WaitGroup
	group.Go(func() {
		for event := range watcher.ResultChan() {
			w.note(event)
		}
	})
	t.Cleanup(func() {
		watcher.Stop()
		group.Wait()
	})
	return w
}

func (w *seen) note(event watch.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	object, ok := event.Object.(*corev1.ConfigMap)
	if !ok {
		w.errs = append(w.errs, fmt.Errorf("the watch got %s %v", event.Type, event.Object))
		return
	}
	if !strings.HasPrefix(object.Name, "load-") {
		return
	}
	value, _ := strconv.Atoi(object.Data["value"])
	before, known := w.last[object.Name]
	if known && value != before+1 || !known && value != 0 {
		w.errs = append(w.errs, fmt.Errorf("the watch got the value %d of %s after %d", value, object.Name, before))
	}
	w.last[object.Name] = value
}

// check waits until the watch has got all that was written, and fails the test if it missed a change, or got one twice.
func (w *seen) check(t *testing.T, written map[string]int) {
	t.Helper()
	eventually(t, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		return expect("what the watch got", fmt.Sprint(w.last), fmt.Sprint(written))
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.errs) > 0 {
		t.Errorf("the watch has %d errors, the first ones are %v", len(w.errs), w.errs[:min(5, len(w.errs))])
	}
}

// run makes requests until stopped is closed.
func (l *load) run(ctx context.Context, stopped <-chan struct{}, client *cluster, name string) {
	maps := client.CoreV1().ConfigMaps("default")
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": "0"}}
	for value := 0; ; value++ {
		select {
		case <-stopped:
			return
		default:
		}
		began := time.Now()
		var err error
		if value == 0 {
			object, err = maps.Create(ctx, object, metav1.CreateOptions{})
		} else {
			object.Data["value"] = strconv.Itoa(value)
			object, err = maps.Update(ctx, object, metav1.UpdateOptions{}) // fails if any write of it was lost, or made twice
		}
		l.note(name, value, time.Since(began), err)
		if err != nil {
			return
		}
		began = time.Now()
		read, err := maps.Get(ctx, name, metav1.GetOptions{})
		if err == nil && read.ResourceVersion != object.ResourceVersion {
			err = fmt.Errorf("%s has the resource version %s after %s was written", name, read.ResourceVersion, object.ResourceVersion)
		}
		l.note("", 0, time.Since(began), err)
	}
}

// check fails the test if a request failed, or if there were none.
func (l *load) check(t *testing.T) {
	t.Helper()
	if len(l.failed) > 0 || l.count == 0 {
		t.Errorf("%d of %d requests failed, the first ones with %v", len(l.failed), l.count, l.failed[:min(5, len(l.failed))])
	}
	t.Logf("%d requests, the slowest took %s", l.count, l.slowest)
}

func (l *load) note(name string, value int, took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	l.slowest = max(l.slowest, took)
	if err != nil {
		l.failed = append(l.failed, fmt.Errorf("%s %d: %w", name, value, err))
	} else if name != "" {
		l.written[name] = value
	}
}
