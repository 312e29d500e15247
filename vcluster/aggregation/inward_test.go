// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregation

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"
	v1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/vcluster/inside"
	"github.com/berth-dev/berth/vcluster/podhttp"
)

const things = "/apis/example.com/v1/namespaces/default/things"

// served is an API service that is available, of a server that answers so.
func served(t *testing.T, answer http.HandlerFunc) *server {
	t.Helper()
	backend := httptest.NewTLSServer(answer)
	t.Cleanup(backend.Close)
	to, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newServer(&Config{
		Resolve: func(string, string, int32) (*url.URL, error) { return to, nil },
		Dial:    (&net.Dialer{}).DialContext,
	}, &v1.APIService{
		Spec: v1.APIServiceSpec{
			Group: "example.com", Version: "v1", InsecureSkipTLSVerify: true,
			Service: &v1.ServiceReference{Namespace: "default", Name: "hook", Port: ptr.To[int32](443)},
		},
		Status: v1.APIServiceStatus{Conditions: []v1.APIServiceCondition{{Type: v1.Available, Status: v1.ConditionTrue}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

func asked(t *testing.T, path string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(request.WithUser(t.Context(), &user.DefaultInfo{Name: "jane"}), http.MethodGet, path, http.NoBody)
	r.Header.Set("Accept", "application/vnd.kubernetes.protobuf;as=ThingList,application/json;as=ThingList,application/json")
	return r
}

// N1: what a server answers to the control plane itself is decoded, and kept,
// in memory that spaces share. Clients get all of it.
func TestWhatTheControlPlaneItselfIsToldIsBounded(t *testing.T) {
	status := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Gone","message":"` + strings.Repeat("a", maxAnswer/2) + `",` +
		`"details":{"causes":[{}` + strings.Repeat(",{}", 1000) + `],"retryAfterSeconds":1000000}}`
	say := func(code int, media, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			w.Header().Set("Retry-After", "1000000")
			w.Header().Set("Warning", `299 - "`+strings.Repeat("a", podhttp.MaxHeader/2)+`"`)
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	const small = `{"kind":"ThingList","apiVersion":"example.com/v1","items":[{},{}]}`
	for reason, c := range map[string]struct {
		path   string
		answer http.HandlerFunc
		code   int
		body   string // if there is one to be had
	}{
		"a list":                      {things, say(http.StatusOK, "application/json", small), http.StatusOK, small},
		"one that takes much decoded": {things, say(http.StatusOK, "application/json", `{"items":[{}`+strings.Repeat(",{}", maxValues)+"]}"), http.StatusServiceUnavailable, ""},
		"one that is long":            {things, say(http.StatusOK, "application/json", `{"items":["`+strings.Repeat("a", maxAnswer)+`"]}`), http.StatusServiceUnavailable, ""},
		"one that can't be measured":  {things, say(http.StatusOK, "application/vnd.kubernetes.protobuf", strings.Repeat("\x12\x00", maxValues)), http.StatusOK, ""},
		"a failure that says much":    {things, say(http.StatusGone, "application/json", status), http.StatusGone, ""},
		"a failure": {things, say(http.StatusGone, "application/json", `{"message":"a","reason":"b","details":{"name":"c"}}`), http.StatusGone,
			`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"a","reason":"b","code":410}`},
		"types, whose names can multiply": {"/openapi/v3/apis/example.com/v1", say(http.StatusOK, "application/json", "{}"), http.StatusMethodNotAllowed, ""},
		"a list that is kept":             {things + "?limit=500&resourceVersion=0", say(http.StatusOK, "application/json", small), http.StatusMethodNotAllowed, ""},
		"a list that is kept, again":      {things + "?resourceVersion=7", say(http.StatusOK, "application/json", small), http.StatusMethodNotAllowed, ""},
		"a watch":                         {things + "?watch=1", say(http.StatusOK, "application/json", small), http.StatusMethodNotAllowed, ""},
	} {
		t.Run(reason, func(t *testing.T) {
			s := served(t, func(w http.ResponseWriter, r *http.Request) {
				if accept := r.Header.Get("Accept"); strings.Contains(accept, "protobuf") {
					t.Errorf("it is asked for %s", accept)
				}
				c.answer(w, r)
			})
			r := asked(t, c.path)
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r.WithContext(inside.Mark(r.Context())))
			if w.Code != c.code {
				t.Errorf("it answers %d, want %d: %.100s", w.Code, c.code, w.Body)
			}
			if c.body != "" && w.Body.String() != c.body {
				t.Errorf("it says %.200s", w.Body)
			}
			if c.body == "" && (w.Body.Len() > 2*maxMessage || json.Valid(w.Body.Bytes())) {
				t.Errorf("it says %d bytes: %.200s", w.Body.Len(), w.Body)
			}
			for _, name := range []string{"Retry-After", "Warning"} {
				if v := w.Header().Get(name); v != "" {
					t.Errorf("%s: %.20s", name, v)
				}
			}
		})
	}

	t.Run("a client", func(t *testing.T) {
		w := httptest.NewRecorder()
		served(t, say(http.StatusGone, "application/json", status)).ServeHTTP(w, asked(t, things+"?limit=500&resourceVersion=0"))
		if w.Code != http.StatusGone || w.Body.String() != status || w.Header().Get("Retry-After") == "" {
			t.Errorf("it gets %d, %d bytes", w.Code, w.Body.Len())
		}
	})
}

// Only JSON is understood, so only JSON is asked for, in the form that the client wants.
func TestTheControlPlaneItselfAsksForJSON(t *testing.T) {
	for accept, want := range map[string]string{
		"":                                    "application/json",
		"application/vnd.kubernetes.protobuf": "application/json",
		"application/vnd.kubernetes.protobuf;as=L,application/json;as=L;v=v1,application/json": "application/json;as=L;v=v1,application/json",
		"application/cbor,;;,application/yaml,*/*, application/json;as=L":                      " application/json;as=L",
	} {
		if got := jsonOf(accept); got != want {
			t.Errorf("%q: %q", accept, got)
		}
	}
}

// Upstream bounds what it asks first, and what it asks then it does not.
func TestDiscoveryWaitsForNoServer(t *testing.T) {
	s := served(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "[")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	w := httptest.NewRecorder()
	s.describe(w, asked(t, "/apis/example.com/v1"))
	if w.Code == http.StatusOK {
		t.Errorf("it answers %d", w.Code)
	}
}

// A client is told how it went, whatever the server says before: here, that the body
// may come.
func TestWhatGoesBeforeAnAnswerIsNotTakenForIt(t *testing.T) {
	s := served(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusEarlyHints)
		http.Error(w, "there is one", http.StatusConflict)
	})
	timed := filters.WithTimeout(s, func(r *http.Request) (*http.Request, bool, func(), *apierrors.StatusError) {
		return r, false, func() {}, nil
	})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(request.WithUser(r.Context(), &user.DefaultInfo{Name: "jane"}), time.Minute)
		defer cancel()
		timed.ServeHTTP(w, r.WithContext(ctx))
	}))
	defer front.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL+things, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Expect", "100-continue")
	resp, err := front.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusConflict {
		t.Errorf("it answers %d", resp.StatusCode)
	}
}
