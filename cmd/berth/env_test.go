// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/crds"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/vcluster"
	"github.com/berth-dev/berth/vcluster/pki"
)

var shared = sync.OnceValues(startHost)

func TestMain(m *testing.M) { os.Exit(testhost.Main(m, shared)) }

// spacePath is below which the host's API also stands for that of a space.
const testSpacePath = "/spaces/solar"

// testHost is the API server of a host with the definitions of Berth. No operator and no platform runs on it: the tests write
// what those would.
type testHost struct {
	client.Client
	cluster *vcluster.ControlPlane
	server  *httptest.Server
	ca      *pki.CA
	dir     string
}

func startHost() (*testHost, error) {
	dir, err := os.MkdirTemp("", "berth-cli-")
	if err != nil {
		return nil, err
	}
	h := &testHost{dir: dir}
	if err := h.start(); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

func (h *testHost) start() (err error) {
	if h.ca, err = pki.OpenCA(filepath.Join(h.dir, "serving"), "serving"); err != nil {
		return err
	}
	pair, err := h.ca.Server("127.0.0.1", "berth.berth.svc")
	if err != nil {
		return err
	}
	certificate, err := pair.TLS()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	h.server = httptest.NewUnstartedServer(mux)
	h.server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	h.server.StartTLS()
	ctx, cancel := context.WithTimeout(context.Background(), testhost.Timeout)
	defer cancel()
	h.cluster, err = vcluster.Start(ctx, vcluster.Config{
		Name: "host", Dir: filepath.Join(h.dir, "host"), Endpoint: h.server.URL, ServingCA: h.ca.PEM(),
		Controllers: vcluster.HostControllers(), Dial: (&net.Dialer{}).DialContext,
	})
	if err != nil {
		return err
	}
	mux.Handle("/", h.cluster.Handler())
	mux.Handle(testSpacePath+"/", http.StripPrefix(testSpacePath, h.cluster.Handler()))
	return h.define(ctx)
}

func (h *testHost) define(ctx context.Context) error {
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), v1alpha1.AddToScheme(known), apiextensionsv1.AddToScheme(known)); err != nil {
		return err
	}
	config := rest.CopyConfig(h.cluster.Loopback())
	config.ContentConfig = rest.ContentConfig{} // JSON: custom resources have no protobuf
	var err error
	if h.Client, err = client.New(config, client.Options{Scheme: known}); err != nil {
		return err
	}
	definitions, err := crds.All()
	if err != nil {
		return err
	}
	for _, definition := range definitions {
		if err := h.Create(ctx, definition); err != nil {
			return err
		}
	}
	for h.List(ctx, &v1alpha1.TenantList{}) != nil || h.List(ctx, &v1alpha1.SpaceList{}) != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// Close stops it and leaves nothing behind.
func (h *testHost) Close() (err error) {
	if h.server != nil {
		h.server.CloseClientConnections()
	}
	if h.cluster != nil {
		ctx, cancel := context.WithTimeout(context.Background(), testhost.Timeout)
		defer cancel()
		err = h.cluster.Stop(ctx)
	}
	if h.server != nil {
		h.server.Close()
	}
	return errors.Join(err, os.RemoveAll(h.dir))
}

// kubeconfig returns one of the host, or of what is below a path, for a user.
func (h *testHost) kubeconfig(t *testing.T, server, user string, groups ...string) []byte {
	t.Helper()
	issued, err := h.cluster.ClientKubeconfig(user, groups)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(issued, []byte(h.server.URL), []byte(server))
}

// use makes commands use the host as an admin, and no data directory. It returns the host.
func use(t *testing.T) *testHost {
	t.Helper()
	h, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", write(t, "host.kubeconfig", h.kubeconfig(t, h.server.URL, "admin", pki.AdminGroup)))
	t.Setenv("BERTH_DATA_DIR", filepath.Join(t.TempDir(), "none"))
	t.Setenv("LC_ALL", "C.UTF-8")
	return h
}

func write(t *testing.T, name string, content []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// berth runs a command, and returns what it prints.
func berth(t *testing.T, args ...string) (out, progress string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := newRoot("berth")
	root.SetArgs(args)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	err = root.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// must runs a command that has to succeed, and returns its output.
func must(t *testing.T, args ...string) string {
	t.Helper()
	out, progress, err := berth(t, args...)
	if err != nil {
		t.Fatalf("berth %q: %v\n%s%s", args, err, out, progress)
	}
	return out
}

// make creates an object with its status, and deletes it when the test ends.
func (h *testHost) make(t *testing.T, object client.Object, finalizers ...string) {
	t.Helper()
	h.forget(t, object)
	object.SetFinalizers(finalizers)
	status := object.DeepCopyObject().(client.Object)
	if err := h.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	status.SetResourceVersion(object.GetResourceVersion())
	if err := h.Status().Update(t.Context(), status); err != nil {
		t.Fatal(err)
	}
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
}

// forget deletes an object when the test ends, if it exists then.
func (h *testHost) forget(t *testing.T, object client.Object) {
	t.Helper()
	key := client.ObjectKeyFromObject(object)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testhost.Timeout)
		defer cancel()
		if h.Get(ctx, key, object) != nil {
			return
		}
		if object.GetFinalizers() != nil {
			object.SetFinalizers(nil)
			if err := h.Update(ctx, object); err != nil {
				t.Error(err)
			}
		}
		if err := client.IgnoreNotFound(h.Delete(ctx, object)); err != nil {
			t.Error(err)
		}
	})
}

// output is written by a command and read by the test.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// begin begins a command, which goes on until the context ends.
func begin(ctx context.Context, args ...string) (out, progress *output, ended chan error) {
	out, progress, ended = &output{}, &output{}, make(chan error, 1)
	root := newRoot("berth")
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(progress)
	go func() { ended <- root.ExecuteContext(ctx) }()
	return out, progress, ended
}
