// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster"
)

// bounded starts a space with limits, without controllers, and returns its admin's way in from outside.
func bounded(t *testing.T, limits bounds.Limits) (*bounds.Account, *vcluster.ControlPlane, *rest.Config) {
	t.Helper()
	gateway := newTestGateway(t)
	c := gateway.config(t, "bounded")
	c.Controllers, c.Account = nil, bounds.NewAccount(limits)
	p := gateway.start(t, c)
	return c.Account, p, admin(t, p)
}

// makeLarge makes n config maps of 300 KiB.
func makeLarge(t *testing.T, client kubernetes.Interface, n int) {
	t.Helper()
	for i := range n {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("large-%02d", i)}, Data: map[string]string{"x": strings.Repeat("x", 300<<10)}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// relabel writes a new version of the first of them.
func relabel(t *testing.T, client kubernetes.Interface, key, value string) {
	t.Helper()
	m, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "large-00", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.Labels = map[string]string{key: value}
	if _, err := client.CoreV1().ConfigMaps("default").Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// L3 (S2): a page that finds no place comes shorter, and a list without pages is refused with what to do; nothing of it
// stays accounted.
func TestHostileListsHoldWhatTheirSpaceMay(t *testing.T) {
	account, p, config := bounded(t, bounds.Limits{bounds.MemoryBytes: 4 << 20})
	makeLarge(t, clientset(t, p.Loopback()), 20)
	client := clientset(t, config)
	_, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), "memory-bytes") {
		t.Errorf("a list of 6 MiB gets %v", err)
	}
	for what, selector := range map[string]string{"all": "", "none": "a=b"} {
		seen, pages, next := 0, 0, ""
		for pages == 0 || next != "" {
			page, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{Limit: 500, Continue: next, LabelSelector: selector})
			if err != nil {
				t.Fatal(err)
			}
			seen += len(page.Items)
			next = page.Continue
			pages++
		}
		if what == "all" && (seen < 20 || pages == 1) || what == "none" && seen > 0 {
			t.Errorf("%s: %d objects in %d pages", what, seen, pages)
		}
	}
	eventually(t, func() error {
		if used := account.Used(bounds.MemoryBytes); used != 0 {
			return fmt.Errorf("%d bytes are accounted with nothing under way", used)
		}
		return nil
	})
}

// L3 (S2): what an answer takes while it is encoded is accounted too: YAML, JSON with spaces, and tables are not streamed.
func TestHostileAnswersThatAreEncodedWholeCostMore(t *testing.T) {
	_, p, config := bounded(t, bounds.Limits{bounds.MemoryBytes: 8 << 20})
	makeLarge(t, clientset(t, p.Loopback()), 8)
	client := clientset(t, config).CoreV1().RESTClient()
	for _, c := range []struct {
		accept, pretty string
		refused        bool
	}{
		{"application/json", "false", false},
		{"application/vnd.kubernetes.protobuf", "false", false},
		{"application/yaml", "false", true},
		{"application/json", "true", true},
		{"application/json;pretty=1", "false", true},
		{"application/json;as=Table;v=v1;g=meta.k8s.io", "false", true},
	} {
		_, err := client.Get().Resource("configmaps").SetHeader("Accept", c.accept).Param("pretty", c.pretty).DoRaw(t.Context())
		if apierrors.IsRequestEntityTooLargeError(err) != c.refused || err != nil && !c.refused {
			t.Errorf("a list as %s, pretty %s, gets %v", c.accept, c.pretty, err)
		}
	}
}

// L3: of an object of 60 KB, 10,000 levels deep, JSON with spaces has 560 MiB, and took 2 GiB to encode. What an answer's
// indentation takes is accounted, whichever request it answers, before it is encoded.
func TestHostileDeepObjectsWithIndentationAreAccounted(t *testing.T) {
	_, _, config := bounded(t, bounds.Limits{bounds.MemoryBytes: 8 << 20})
	definitions, err := apiextensions.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	d := definition("one", 10)
	d.Spec.Versions[0].Schema.OpenAPIV3Schema.XPreserveUnknownFields = ptr.To(true)
	if _, err := definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client := clientset(t, config).CoreV1().RESTClient()
	const path = "/apis/example.com/v1/namespaces/default/ones"
	body := func(name string) []byte {
		return []byte(`{"apiVersion":"example.com/v1","kind":"one","metadata":{"name":"` + name + `","finalizers":["example.com/hold"]},"x":` +
			strings.Repeat("[", 1500) + "1" + strings.Repeat(",1", 800) + strings.Repeat("]", 1500) + "}")
	}
	eventually(t, func() error { return client.Post().AbsPath(path).Body(body("deep")).Do(t.Context()).Error() })
	patch := []byte(`{"metadata":{"labels":{"a":"b"}}}`)
	for name, ask := range map[string]func() *rest.Request{
		"get":     func() *rest.Request { return client.Get().AbsPath(path, "deep") },
		"list":    func() *rest.Request { return client.Get().AbsPath(path) },
		"create":  func() *rest.Request { return client.Post().AbsPath(path).Body(body("other")) },
		"dry run": func() *rest.Request { return client.Post().AbsPath(path).Body(body("other")).Param("dryRun", "All") },
		"patch":   func() *rest.Request { return client.Patch(types.MergePatchType).AbsPath(path, "deep").Body(patch) },
		"delete":  func() *rest.Request { return client.Delete().AbsPath(path, "deep") },
	} {
		if _, err := ask().Param("pretty", "true").DoRaw(t.Context()); !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("%s with spaces gets %.200v", name, err)
		}
		if _, err := ask().SetHeader("Accept", "application/yaml").DoRaw(t.Context()); !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("%s as YAML gets %.200v", name, err)
		}
	}
	if _, err := client.Get().AbsPath(path, "deep").DoRaw(t.Context()); err != nil {
		t.Errorf("without spaces it gets %.200v", err)
	}
	if _, err := client.Get().AbsPath("/api/v1/namespaces/default").Param("pretty", "true").DoRaw(t.Context()); err != nil {
		t.Errorf("a usual object gets %v", err)
	}
}

// L3 (S2): watches are bounded in number, and are counted until they end.
func TestHostileASpaceHasNoMoreWatchesThanAllowed(t *testing.T) {
	_, _, config := bounded(t, bounds.Limits{bounds.Watches: 2})
	client := clientset(t, config)
	open := func() (watch.Interface, error) {
		return client.CoreV1().Secrets("").Watch(t.Context(), metav1.ListOptions{})
	}
	var watches []watch.Interface
	for range 2 {
		w, err := open()
		if err != nil {
			t.Fatal(err)
		}
		watches = append(watches, w)
	}
	if _, err := client.CoreV1().RESTClient().Get().Resource("secrets").Param("watch", "1").MaxRetries(0).Stream(t.Context()); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the third watch gets %v", err)
	}
	watches[0].Stop()
	eventually(t, func() error {
		w, err := open()
		if err == nil {
			w.Stop()
		}
		return err
	})
	watches[1].Stop()
}

// L3 (S2): of watches that nobody reads, the one that is furthest behind ends when they hold what they may together. One
// that is read misses nothing.
func TestHostileTheWatchThatIsFurthestBehindEnds(t *testing.T) {
	account, p, config := bounded(t, bounds.Limits{bounds.WatchBytes: 4 << 20})
	own := clientset(t, p.Loopback())
	makeLarge(t, own, 1)
	stream := func() io.ReadCloser {
		body, err := clientset(t, rest.CopyConfig(config)).CoreV1().RESTClient().Get().
			Resource("configmaps").Param("watch", "1").Stream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = body.Close() })
		return body
	}
	unread := []io.ReadCloser{stream(), stream(), stream(), stream()}
	read, err := clientset(t, config).CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer read.Stop()
	// write changes the object, and waits until the watch that is read has the change.
	write := func(value string) {
		t.Helper()
		relabel(t, own, "write", value)
		for {
			select {
			case e, ok := <-read.ResultChan():
				m, _ := e.Object.(*corev1.ConfigMap)
				if !ok || m == nil {
					t.Fatalf("a watch that is read got %v, %t", e.Type, ok)
				}
				if m.Labels["write"] == value {
					return
				}
			case <-time.After(testTimeout):
				t.Fatal("a watch that is read gets nothing")
			}
		}
	}
	for begun, n := time.Now(), 0; account.Used(bounds.Watches) > int64(len(unread)); n++ {
		if time.Since(begun) > testTimeout {
			t.Fatalf("after %d writes no watch has ended: %+v", n, account.Usage()[bounds.WatchBytes])
		}
		write(fmt.Sprint(n))
	}
	if account.Usage()[bounds.WatchBytes].Refused == 0 {
		t.Error("a watch has ended and nothing was refused")
	}
	write("last")
}

// A watch's selector keeps changes from its client: these must not be waited for.
func TestAWatchWhoseSelectorMatchesLittleGoesOn(t *testing.T) {
	account, p, config := bounded(t, nil)
	own, client := clientset(t, p.Loopback()), clientset(t, config)
	makeLarge(t, own, 8)
	w, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{
		LabelSelector: "wanted=yes", // with all objects that there are, of which none matches
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	next := func(want watch.EventType) {
		t.Helper()
		select {
		case e := <-w.ResultChan():
			if e.Type != want {
				t.Fatalf("got %s of %v, want %s", e.Type, e.Object, want)
			}
		case <-time.After(testTimeout):
			t.Fatalf("no %s comes; %d bytes are accounted", want, account.Used(bounds.WatchBytes))
		}
	}
	for range 10 {
		relabel(t, own, "wanted", "no")
	}
	relabel(t, own, "wanted", "yes")
	next(watch.Added)
	relabel(t, own, "wanted", "no")
	next(watch.Deleted)
	for range 10 {
		relabel(t, own, "wanted", "never")
		relabel(t, own, "wanted", "no")
	}
	eventually(t, func() error {
		if used := account.Used(bounds.WatchBytes); used != 0 {
			return fmt.Errorf("%d bytes are accounted", used)
		}
		return nil
	})
}

// L3 (S2): definitions are bounded in number and size; deletions are not.
func TestHostileASpaceHasNoMoreDefinitionsThanAllowed(t *testing.T) {
	_, _, config := bounded(t, bounds.Limits{bounds.CustomResourceDefinitions: 2, bounds.SchemaBytes: 64 << 10})
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	create := func(name string, description int) error {
		_, err := crds.Create(t.Context(), definition(name, description), metav1.CreateOptions{})
		return err
	}
	if err := create("large", 100<<10); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "schema-bytes") {
		t.Errorf("a definition of 100 KiB gets %v", err)
	}
	for _, name := range []string{"one", "two"} {
		if err := create(name, 10); err != nil {
			t.Fatal(err)
		}
	}
	if err := create("three", 10); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit customresourcedefinitions is reached") {
		t.Errorf("the third definition gets %v", err)
	}
	eventually(t, func() error {
		grown, err := crds.Get(t.Context(), "ones.example.com", metav1.GetOptions{})
		if err != nil {
			return err
		}
		grown.Spec.Versions = definition("one", 100<<10).Spec.Versions
		if _, err = crds.Update(t.Context(), grown, metav1.UpdateOptions{}); apierrors.IsForbidden(err) && strings.Contains(err.Error(), "schema-bytes") {
			return nil
		}
		return fmt.Errorf("a definition that grows gets %w", err)
	})
	if err := crds.Delete(t.Context(), "twos.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return create("three", 10) })
}

// L3 (S2): patterns are refused before anything compiles them, and so are versions without end.
func TestHostileADefinitionHasNoLargePatternsNorManyVersions(t *testing.T) {
	_, _, config := bounded(t, nil)
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	pattern := func(pattern string) *apiextensionsv1.CustomResourceDefinition {
		d := definition("one", 10)
		d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties = map[string]apiextensionsv1.JSONSchemaProps{"x": {Type: "string", Pattern: pattern}}
		return d
	}
	versions := definition("two", 10)
	for i := range 30 {
		v := *versions.Spec.Versions[0].DeepCopy()
		v.Name, v.Storage = fmt.Sprintf("v%d", i+2), false
		versions.Spec.Versions = append(versions.Spec.Versions, v)
	}
	for says, d := range map[string]*apiextensionsv1.CustomResourceDefinition{
		"schema.openAPIV3Schema.properties[x].pattern: Invalid value": pattern("<1>" + strings.Repeat("a{1000}", 500)),
		"spec.versions: Invalid value: 31":                            versions,
	} {
		_, err := crds.Create(t.Context(), d, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want it to say %s", err, says)
		}
	}
	if _, err := crds.Create(t.Context(), pattern("^[a-z]{1,63}$"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	patch := `[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/x/pattern","value":"(a?){1000}"}]`
	if _, err := crds.Patch(t.Context(), "ones.example.com", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "pattern-instructions") {
		t.Errorf("a patch gets %v", err)
	}
}

func definition(kind string, description int) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: kind + "s.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: kind + "s", Kind: kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Description: strings.Repeat("x", description),
				}},
			}},
		},
	}
}

// L3 (S2): an object more than allowed is refused, with what to do.
func TestHostileASpaceHasNoMoreObjectsThanAllowed(t *testing.T) {
	account, _, config := bounded(t, bounds.Limits{bounds.Objects: 400})
	client := clientset(t, config)
	made := 0
	var err error
	for ; err == nil && made < 500; made++ {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%d", made)}}
		_, err = client.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{})
	}
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit objects is reached") || account.Used(bounds.Objects) != 400 {
		t.Errorf("object %d of %d gets %v", made, account.Used(bounds.Objects), err)
	}
	if err := client.CoreV1().ConfigMaps("default").Delete(t.Context(), "m-0", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}
