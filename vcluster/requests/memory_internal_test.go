// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/internal/heapsize"
)

// L3 (S2): what is accounted of a document is at least what it takes decoded, whatever it is made of.
func TestHostileADocumentIsAccountedWithWhatItBecomes(t *testing.T) {
	repeat := func(element string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	for name, c := range map[string]struct {
		document string
		into     func() any
	}{
		"empty containers": {repeat("{}", 20000), func() any { return &[]corev1.Container{} }},
		"null containers":  {repeat("null", 20000), func() any { return &[]corev1.Container{} }},
		"small maps":       {repeat(`{"a":1}`, 20000), func() any { return new(any) }},
		"empty maps":       {repeat(`{}`, 20000), func() any { return new(any) }},
		"empty lists":      {repeat(`[]`, 20000), func() any { return new(any) }},
		"numbers":          {repeat(`1`, 20000), func() any { return new(any) }},
		"text":             {`"` + strings.Repeat(`\u0001`, 100000) + `"`, func() any { return new(string) }},
	} {
		t.Run(name, func(t *testing.T) {
			// What else the process lets go of meanwhile makes a document look smaller than it is.
			var into any
			var took int64
			for range 5 {
				into = c.into()
				before := inUse()
				if err := json.Unmarshal([]byte(c.document), into); err != nil {
					t.Fatal(err)
				}
				took = max(took, inUse()-before)
			}
			accounted, size := accountedFor(t, "application/json", c.document), heapsize.Of(into)
			runtime.KeepAlive(into)
			if accounted < took {
				t.Errorf("a document that takes %d bytes is accounted with %d", took, accounted)
			}
			if size < took*3/4 || size > took*3 {
				t.Errorf("what takes %d bytes is measured to be %d", took, size)
			}
		})
	}
}

func inUse() int64 {
	runtime.GC()
	runtime.GC() // what pools keep goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // less than the machine's memory
}

func TestAUsualObjectIsMeasuredAsWhatItTakes(t *testing.T) {
	pods := make([]*corev1.Pod, 2000)
	before := inUse()
	for i := range pods {
		pods[i] = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: strings.Clone("a-pod-with-a-name"), Labels: map[string]string{"app": "web", "tier": "front"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Env: make([]corev1.EnvVar, 20)}}},
		}
	}
	took := inUse() - before
	var size int64
	for _, p := range pods {
		size += heapsize.Of(p) - 8
	}
	runtime.KeepAlive(pods)
	if size < took*2/3 || size > took*3/2 {
		t.Errorf("pods that take %d bytes are measured to be %d", took, size)
	}
}

// stuck is a connection whose client takes nothing, until its deadline.
type stuck struct {
	http.ResponseWriter
	writing chan struct{}
	ended   chan struct{}
	once    sync.Once
}

var errDeadline = errors.New("deadline")

func (s *stuck) Write([]byte) (int, error) {
	s.writing <- struct{}{}
	<-s.ended
	return 0, errDeadline
}

func (s *stuck) SetWriteDeadline(time.Time) error {
	s.once.Do(func() { close(s.ended) })
	return nil
}

// L3 (S2): who asks for much and reads nothing is cut off; a watch without changes is not.
func TestHostileAnAnswerThatNobodyTakesIsEnded(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Now())
	w := &stuck{ResponseWriter: httptest.NewRecorder(), writing: make(chan struct{}), ended: make(chan struct{})}
	answered := make(chan error, 1)
	proceed := make(chan struct{})
	go EndStalled(c, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-proceed // as a watch waits for a change
		_, err := w.Write(make([]byte, 1<<20))
		answered <- err
	})).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	c.Step(2 * stallTime)
	select {
	case <-w.ended:
		t.Fatal("an answer of which nothing waits was ended")
	default:
	}
	close(proceed)
	<-w.writing
	for {
		select {
		case err := <-answered:
			if !errors.Is(err, errDeadline) {
				t.Errorf("the handler got %v", err)
			}
			return
		default:
			c.Step(stallTime / 4)
		}
	}
}
