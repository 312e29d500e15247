// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/berth-dev/berth/internal/testhost"
)

const (
	described = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	beginning = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":"wardle.example.com"},` +
		`"versions":[{"version":"v1alpha1","resources":[`
	offered = `{"resource":"flunders","responseKind":{"group":"","version":"","kind":"Flunder"},"scope":"Namespaced",` +
		`"singularResource":"flunder","verbs":["delete","deletecollection","get","list","watch"]}`
	end = `]}]}]}`
)

// hostile is a server whose answers are the test's.
type hostile struct {
	answer http.HandlerFunc

	mu      sync.Mutex
	reached bool
	ended   []string // paths whose answers have ended
}

func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.reached = true
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.ended = append(h.ended, r.URL.Path)
	}()
	h.answer(w, r)
}

// letGo waits until a path was asked for, and its answer has ended.
func (h *hostile) letGo(t *testing.T, path string) {
	t.Helper()
	testhost.Eventually(t, "the end of the answer to "+path, func(context.Context) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !slices.Contains(h.ended, path) {
			return fmt.Errorf("there were the ends of %q", h.ended)
		}
		return nil
	})
}

// endless writes until it can't.
func endless(w http.ResponseWriter) { _, _ = io.Copy(w, spaces{}) }

func (s *space) aggregateHostile(t *testing.T, answer http.HandlerFunc) *hostile {
	t.Helper()
	h := &hostile{answer: answer}
	port, ca := serveTLS(t, h)
	s.run(t, newPod("web", "app"))
	s.expose(t, map[string]string{"app": "web"}, port)
	s.aggregate(t, ca)
	return h
}

// What a server says of itself is read into memory that all spaces share, by
// goroutines and workers of the space's.
func TestAHostileAPIServerIsCutOff(t *testing.T) {
	var bomb bytes.Buffer
	packed := gzip.NewWriter(&bomb)
	if _, err := io.Copy(packed, io.MultiReader(strings.NewReader(beginning+offered+end), io.LimitReader(spaces{}, 64<<20))); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	count := 0
	for name, c := range map[string]struct {
		answer    http.HandlerFunc
		available bool // as its status is good, at least
	}{
		"its answer never ends": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", described)
			_, _ = io.WriteString(w, beginning)
			endless(w)
		}, true},
		"it offers too much": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", described)
			_, _ = io.WriteString(w, beginning+strings.Repeat(`{"resource":"a"},`, 20_000)+offered+end)
		}, true},
		"its answer is compressed": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", described)
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		}, true},
		"it closes in the middle": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", described)
			_, _ = io.WriteString(w, beginning+offered)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, true},
		"it hangs": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, false},
		"its header is long": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Long", strings.Repeat("a", 1<<20))
		}, false},
		"it answers in another form": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
			_, _ = io.WriteString(w, "k8s\x00\x0a\x0b")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			count++
			s := theEnv(t).space(t, "cut"+strconv.Itoa(count))
			h := s.aggregateHostile(t, c.answer)
			status, reason := apiregistrationv1.ConditionTrue, "Passed"
			if !c.available {
				status, reason = apiregistrationv1.ConditionFalse, "FailedDiscoveryCheck"
			}
			if said := s.eventuallyAvailable(t, wardleService, status, reason); tells(s, said) || len(said) > 1<<10 {
				t.Errorf("it says %q", said)
			}
			h.letGo(t, "/apis")

			_, lists, err := s.Discovery().ServerGroupsAndResources()
			if err != nil && !strings.Contains(err.Error(), "wardle.example.com") {
				t.Error(err)
			}
			for _, l := range lists {
				if strings.HasPrefix(l.GroupVersion, "wardle") && len(l.APIResources) > 0 {
					t.Errorf("%s has %d resources", l.GroupVersion, len(l.APIResources))
				}
			}
			if !slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool { return l.GroupVersion == "apps/v1" && len(l.APIResources) > 0 }) {
				t.Error("built-in resources are not found")
			}
		})
	}
}

// eventuallyOffered waits until flunders are in discovery.
func (s *space) eventuallyOffered(t *testing.T) {
	t.Helper()
	testhost.Eventually(t, "flunders in discovery", func(context.Context) error {
		_, lists, err := s.Discovery().ServerGroupsAndResources()
		if err == nil && !slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool {
			return l.GroupVersion == "wardle.example.com/v1alpha1" && len(l.APIResources) > 0
		}) {
			err = errors.New("there are none")
		}
		return err
	})
}

// A controller of the space's that lists what a server has gets no end of it.
func TestControllersReadNoEndlessLists(t *testing.T) {
	s := theEnv(t).space(t, "listed")
	const list = "/apis/wardle.example.com/v1alpha1/namespaces/gone/flunders"
	h := s.aggregateHostile(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/apis":
			w.Header().Set("Content-Type", described)
			_, _ = io.WriteString(w, beginning+offered+end)
		case r.URL.Path == list && r.Method == http.MethodGet:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"FlunderList","apiVersion":"wardle.example.com/v1alpha1","items":[`)
			endless(w)
		default:
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
		}
	})
	s.eventuallyAvailable(t, wardleService, apiregistrationv1.ConditionTrue, "Passed")
	s.eventuallyOffered(t)
	namespaces := s.CoreV1().Namespaces()
	if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := namespaces.Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	h.letGo(t, list)
	// As upstream, it goes once nobody claims to have something in it.
	if err := s.apiServices(t).ApiregistrationV1().APIServices().Delete(t.Context(), wardleService, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testhost.Eventually(t, "no namespace", func(ctx context.Context) error {
		if _, err := namespaces.Get(ctx, "gone", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}

// What goes wrong when a namespace is emptied, and what holds it up, is kept until all
// kinds have been seen to: of a tenant's server little is.
func TestControllersKeepLittleOfWhatServersSay(t *testing.T) {
	s := theEnv(t).space(t, "told")
	much := strings.Repeat("a", 1<<20)
	said := map[string]string{
		"failing":  `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"` + much + `","message":"` + much + `"}`,
		"kindless": `{"items":["` + much + `"]}`,
		"held": `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[` +
			`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","finalizers":["example.com/a","` + much + `"]}}]}`,
	}
	s.aggregateHostile(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		namespace, found := strings.CutPrefix(r.URL.Path, "/apis/wardle.example.com/v1alpha1/namespaces/")
		namespace, _, _ = strings.Cut(namespace, "/")
		switch {
		case r.URL.Path == "/apis":
			w.Header().Set("Content-Type", described)
			_, _ = io.WriteString(w, beginning+offered+end)
		case found && r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case found:
			_, _ = io.WriteString(w, said[namespace])
		}
	})
	s.eventuallyAvailable(t, wardleService, apiregistrationv1.ConditionTrue, "Passed")
	s.eventuallyOffered(t)
	for name := range said {
		t.Run(name, func(t *testing.T) {
			namespaces := s.CoreV1().Namespaces()
			if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := namespaces.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			testhost.Eventually(t, "why it does not go", func(ctx context.Context) error {
				v, err := namespaces.Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				told, why := 0, false
				for _, c := range v.Status.Conditions {
					told += len(c.Message)
					why = why || c.Status == corev1.ConditionTrue
				}
				if !why {
					return errors.New("it does not say")
				}
				if told > 8<<10 {
					t.Errorf("it says %d bytes", told)
				}
				return nil
			})
		})
	}
}

// What a client asks for is the client's to bear: it passes through.
func TestAClientGetsAllOfALongAnswer(t *testing.T) {
	s := theEnv(t).space(t, "long")
	const size = 24 << 20
	s.aggregateHostile(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/long") {
			_, _ = io.CopyN(w, spaces{}, size)
		}
	})
	s.eventuallyAvailable(t, wardleService, apiregistrationv1.ConditionTrue, "Passed")
	body, err := s.CoreV1().RESTClient().Get().AbsPath("/apis/wardle.example.com/v1alpha1/long").Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if n, err := io.Copy(io.Discard, body); n != size || err != nil {
		t.Errorf("%d bytes came (%v)", n, err)
	}
}
