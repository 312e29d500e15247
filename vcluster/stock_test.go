// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/internal/stock"
)

// stockEnv makes this test binary be a stock API server: upstream sets feature
// gates for the whole process, so it can't be this one.
const stockEnv = "BERTH_TEST_STOCK_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(stockEnv); dir != "" {
		if err := serveStock(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// access is how to get in.
type stockAccess struct{ Host, Token, CA string }

func serveStock(dir string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	config, stop, err := stock.Start(ctx, dir)
	if err != nil {
		return err
	}
	access := stockAccess{Host: config.Host, Token: config.BearerToken, CA: string(config.CAData)}
	if err := json.NewEncoder(os.Stdout).Encode(access); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
	return stop(context.Background())
}

// startStock starts a stock API server in a process of its own.
func startStock(t *testing.T) *rest.Config {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), stockEnv+"="+t.TempDir())
	cmd.Stderr = &bytes.Buffer{}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	var access stockAccess
	if err := json.NewDecoder(stdout).Decode(&access); err != nil {
		t.Fatalf("start a stock API server: %v: %s", err, cmd.Stderr)
	}
	config := &rest.Config{Host: access.Host, BearerToken: access.Token, QPS: -1}
	config.CAData = []byte(access.CA)
	config.ServerName = "apiserver-loopback-client"
	eventually(t, func() error {
		answer, err := ask(t.Context(), config, http.MethodGet, "/readyz", "", "")
		if err == nil && answer.code != http.StatusOK {
			err = fmt.Errorf("not ready: %s", answer.body)
		}
		return err
	})
	return config
}

// answer is what a client sees of a response.
type answer struct {
	code        int
	contentType string
	etag        string
	warnings    []string
	body        []byte
}

func ask(ctx context.Context, c *rest.Config, method, path, accept, body string) (answer, error) {
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Host+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("User-Agent", "comparison")
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	switch {
	case method == http.MethodPatch:
		req.Header.Set("Content-Type", "application/apply-patch+yaml")
	case body != "":
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header.Get("ETag"), resp.Header.Values("Warning"), data}, err
}

// must asks and fails the test if there is no answer.
func (c comparison) must(t *testing.T, config *rest.Config, method, path, accept, body string) answer {
	t.Helper()
	a, err := ask(t.Context(), config, method, path, accept, body)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// comparison asks a space and a stock API server the same.
type comparison struct{ space, stock *rest.Config }

// same compares answers to the byte, but for what says who and when.
func (c comparison) same(t *testing.T, method, path, accept, body string) {
	t.Helper()
	want, got := c.must(t, c.stock, method, path, accept, body), c.must(t, c.space, method, path, accept, body)
	what := method + " " + path + " as " + accept
	if strings.HasPrefix(path, "/openapi/v3/apis/example.com/") && got.etag != "" { // of what it is made of
		got.etag = want.etag
	}
	if got.code != want.code || got.contentType != want.contentType || got.etag != want.etag {
		t.Errorf("%s: %d, %s, ETag %s; stock: %d, %s, ETag %s",
			what, got.code, got.contentType, got.etag, want.code, want.contentType, want.etag)
	}
	if diff := cmp.Diff(want.warnings, got.warnings); diff != "" {
		t.Errorf("%s: warnings (-stock +space):\n%s", what, diff)
	}
	wantBody, gotBody := anonymous(want.body), anonymous(got.body)
	if bytes.Equal(wantBody, gotBody) {
		return
	}
	var wantJSON, gotJSON any
	if json.Unmarshal(wantBody, &wantJSON) == nil && json.Unmarshal(gotBody, &gotJSON) == nil {
		lines := differences("", wantJSON, gotJSON)
		t.Errorf("%s differs from stock:\n%s", what, strings.Join(lines[:min(len(lines), 5)], "\n"))
		return
	}
	t.Errorf("%s: %d bytes, stock %d", what, len(gotBody), len(wantBody))
}

// differences names what differs, a line each: a whole document is too long to
// be read.
func differences(path string, want, got any) []string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			break
		}
		all := maps.Clone(w)
		maps.Copy(all, g)
		var found []string
		for _, key := range slices.Sorted(maps.Keys(all)) {
			found = append(found, differences(path+"."+key, w[key], g[key])...)
		}
		return found
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			break
		}
		var found []string
		for i := range w {
			found = append(found, differences(fmt.Sprintf("%s[%d]", path, i), w[i], g[i])...)
		}
		return found
	}
	if cmp.Equal(want, got) {
		return nil
	}
	return []string{fmt.Sprintf("%s: stock %.200v, space %.200v", path, want, got)}
}

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

var identities = regexp.MustCompile(`("(?:uid|resourceVersion|serverAddress|storageVersionHash)":)"[^"]*"`)

// crdHashes are of documents that a stock server makes and keeps, and a space makes when they are asked for.
var crdHashes = regexp.MustCompile(`(/openapi/v3/apis/example\.com/[^?]*\?hash=)[0-9A-F]+`)

func anonymous(body []byte) []byte {
	body = crdHashes.ReplaceAll(body, []byte(`$1`))
	return identities.ReplaceAll(times.ReplaceAll(body, []byte("TIME")), []byte(`$1"?"`))
}

const (
	asJSONType   = "application/json"
	asProtobuf   = "application/vnd.kubernetes.protobuf"
	asAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	asTable      = "application/json;as=Table;v=v1;g=meta.k8s.io"
	openAPIProto = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	openAPI3     = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
)

// Sharing must not show: what is built in answers as a stock API server does, to
// the byte, with CRDs and without.
func TestBuiltInAPIsAnswerAsAStockServerDoes(t *testing.T) {
	alone := config(t, "like-stock")
	alone.Controllers = nil // stock has none
	alone.Access = nil      // stock has no tenants, and nothing of Berth's
	c := comparison{stock: startStock(t), space: start(t, alone).Loopback()}
	t.Run("without CRDs", func(t *testing.T) { compareDiscovery(t, c) })
	for _, config := range []*rest.Config{c.stock, c.space} {
		client, err := apiextensionsclient.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), boats(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/openapi/v2", "/openapi/v3", "/apis"} {
			eventually(t, func() error {
				a, err := ask(t.Context(), config, http.MethodGet, path, asJSONType, "")
				if err == nil && !bytes.Contains(a.body, []byte("example.com")) {
					err = fmt.Errorf("%s lacks the CRD", path)
				}
				return err
			})
		}
	}
	t.Run("with a CRD", func(t *testing.T) { compareDiscovery(t, c) })
	t.Run("requests", func(t *testing.T) { compareRequests(t, c) })
}

func compareDiscovery(t *testing.T, c comparison) {
	t.Helper()
	for _, path := range []string{"/api", "/apis"} {
		c.same(t, http.MethodGet, path, asJSONType, "")
		c.same(t, http.MethodGet, path, asAggregated, "")
	}
	var index struct{ Paths []string }
	if err := json.Unmarshal(c.must(t, c.stock, http.MethodGet, "/", asJSONType, "").body, &index); err != nil {
		t.Fatal(err)
	}
	var apis int
	for _, path := range index.Paths {
		if strings.HasPrefix(path, "/api") && path != "/apis/" {
			c.same(t, http.MethodGet, path, asJSONType, "")
			if path != "/api" { // holds the server's address
				c.same(t, http.MethodGet, path, asProtobuf, "")
			}
			apis++
		}
	}
	if apis < 40 {
		t.Errorf("stock lists %d APIs", apis)
	}
	compareIndex(t, c, index.Paths)

	c.same(t, http.MethodGet, "/openapi/v2", asJSONType, "")
	c.same(t, http.MethodGet, "/openapi/v2", openAPIProto, "")
	var paths struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	for _, config := range []*rest.Config{c.stock, c.space} { // all of either's
		if err := json.Unmarshal(c.must(t, config, http.MethodGet, "/openapi/v3", asJSONType, "").body, &paths); err != nil {
			t.Fatal(err)
		}
	}
	c.same(t, http.MethodGet, "/openapi/v3", asJSONType, "")
	for path := range paths.Paths {
		c.same(t, http.MethodGet, "/openapi/v3/"+path, asJSONType, "")
		c.same(t, http.MethodGet, "/openapi/v3/"+path, openAPI3, "")
	}
}

// compareIndex checks what is listed: all that stock lists, but for what would
// tell of the process (T2, N1).
func compareIndex(t *testing.T, c comparison, stock []string) {
	t.Helper()
	var index struct{ Paths []string }
	if err := json.Unmarshal(c.must(t, c.space, http.MethodGet, "/", asJSONType, "").body, &index); err != nil {
		t.Fatal(err)
	}
	ofTheProcess := func(path string) bool {
		for _, prefix := range []string{"/debug", "/logs", "/metrics", "/flagz", "/statusz"} {
			if strings.HasPrefix(path, prefix) {
				return true
			}
		}
		// A check for each post-start hook, some of which are ours.
		return strings.Contains(path, "/poststarthook/") || strings.HasPrefix(path, "/healthz/") ||
			strings.HasPrefix(path, "/livez/") || strings.HasPrefix(path, "/readyz/")
	}
	if diff := cmp.Diff(slices.DeleteFunc(stock, ofTheProcess), slices.DeleteFunc(index.Paths, ofTheProcess)); diff != "" {
		t.Errorf("paths (-stock +space):\n%s", diff)
	}
}

// compareRequests makes the same calls of both.
func compareRequests(t *testing.T, c comparison) {
	t.Helper()
	const (
		configMaps  = "/api/v1/namespaces/default/configmaps"
		deployments = "/apis/apps/v1/namespaces/default/deployments"
	)
	deployment := func(image string) string {
		return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"selector":{"matchLabels":{"app":"web"}},` +
			`"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"` + image + `"}]}}}}`
	}
	for _, r := range []struct{ why, method, path, accept, body string }{
		{"create", http.MethodPost, configMaps, asJSONType, `{"metadata":{"name":"a"},"data":{"k":"v"}}`},
		{"create again", http.MethodPost, configMaps, asJSONType, `{"metadata":{"name":"a"}}`},
		{"invalid", http.MethodPost, configMaps, asJSONType, `{"metadata":{"name":"A_"}}`},
		{"unknown field", http.MethodPost, configMaps + "?fieldValidation=Strict", asJSONType, `{"metadata":{"name":"b"},"dat":{}}`},
		{"unknown field, warned of", http.MethodPost, configMaps + "?fieldValidation=Warn", asJSONType, `{"metadata":{"name":"b"},"dat":{}}`},
		{"dry run", http.MethodPost, configMaps + "?dryRun=All", asJSONType, `{"metadata":{"name":"dry"}}`},
		{"get", http.MethodGet, configMaps + "/a", asJSONType, ""},
		{"get nothing", http.MethodGet, configMaps + "/none", asJSONType, ""},
		{"table", http.MethodGet, configMaps + "?fieldSelector=metadata.name%3Da", asTable, ""},
		{"apply", http.MethodPatch, deployments + "/web?fieldManager=one", asJSONType, deployment("i:1")},
		{"apply as another", http.MethodPatch, deployments + "/web?fieldManager=two", asJSONType, deployment("i:2")},
		{"apply by force", http.MethodPatch, deployments + "/web?fieldManager=two&force=true", asJSONType, deployment("i:2")},
		{"apply what has an unknown field", http.MethodPatch, deployments + "/web?fieldManager=one&fieldValidation=Strict", asJSONType,
			strings.Replace(deployment("i:1"), `"spec"`, `"spek"`, 1)},
		{"scale", http.MethodGet, deployments + "/web/scale", asJSONType, ""},
		{"node port", http.MethodPost, "/api/v1/namespaces/default/services?dryRun=All", asJSONType,
			`{"metadata":{"name":"s"},"spec":{"type":"NodePort","clusterIP":"10.96.0.9","ports":[{"port":1,"nodePort":30001}]}}`},
		{"address out of range", http.MethodPost, "/api/v1/namespaces/default/services", asJSONType,
			`{"metadata":{"name":"s"},"spec":{"clusterIP":"192.0.2.9","ports":[{"port":1}]}}`},
		{"policy", http.MethodPost, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", asJSONType,
			`{"metadata":{"name":"p"},"spec":{"paramKind":{"apiVersion":"example.com/v1","kind":"Boat"},"validations":[{"expression":"true"}],` +
				`"matchConstraints":{"resourceRules":[{"apiGroups":["apps"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["deployments"]}]}}}`},
		{"namespace for administrators of devices", http.MethodPost, "/api/v1/namespaces", asJSONType,
			`{"metadata":{"name":"devices","labels":{"resource.kubernetes.io/admin-access":"true"}}}`},
		{"claim with administrator's access", http.MethodPost, "/apis/resource.k8s.io/v1/namespaces/devices/resourceclaims", asJSONType,
			`{"metadata":{"name":"c"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"d.example.com","allocationMode":"All","adminAccess":true}}]}}}`},
		{"apply the status of no policy", http.MethodPatch,
			"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/none/status?fieldManager=one", asJSONType,
			`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"none"},"status":{"observedGeneration":1}}`},
		{"token of nobody", http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/none/token", asJSONType, `{"spec":{}}`},
		{"eviction of nothing", http.MethodPost, "/api/v1/namespaces/default/pods/none/eviction", asJSONType, `{"metadata":{"name":"none"}}`},
		{"log of nothing", http.MethodGet, "/api/v1/namespaces/default/pods/none/log", asJSONType, ""},
		{"custom", http.MethodPost, "/apis/example.com/v1/namespaces/default/boats", asJSONType,
			`{"apiVersion":"example.com/v1","kind":"Boat","metadata":{"name":"b"},"spec":{"length":7}}`},
		{"apply custom", http.MethodPatch, "/apis/example.com/v1/namespaces/default/boats/b?fieldManager=one", asJSONType,
			`{"apiVersion":"example.com/v1","kind":"Boat","metadata":{"name":"b"},"spec":{"length":8}}`},
		{"review", http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asJSONType,
			`{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`},
		{"no such resource", http.MethodGet, "/api/v1/nothings", asJSONType, ""},
		{"no such version", http.MethodGet, "/apis/apps/v9/deployments", asJSONType, ""},
		{"no such group", http.MethodGet, "/apis/none.example.com/v1", asJSONType, ""},
		{"no such method", http.MethodPut, configMaps, asJSONType, "{}"},
		{"no such type", http.MethodGet, configMaps, "text/html", ""},
		{"no such path", http.MethodGet, "/api/v2", asJSONType, ""},
		{"delete", http.MethodDelete, deployments + "/web", asJSONType, ""},
	} {
		t.Run(r.why, func(t *testing.T) { c.same(t, r.method, r.path, r.accept, r.body) })
	}
}
