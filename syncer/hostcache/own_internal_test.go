// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/heapsize"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// lists answers the lists of a test's host.
type lists struct {
	mu      sync.Mutex
	objects map[string][]client.Object // by resource
	version string
	// meanwhile, if set, is called when a response has been made, and is not there yet.
	meanwhile func(resource string)
	fails     error
	requests  []string // RESOURCE/NAMESPACE, with a + for each page after the first one
}

func (l *lists) list(resource string) func(context.Context, string, metav1.ListOptions) (runtime.Object, error) {
	return func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
		l.mu.Lock()
		from, _ := strconv.Atoi(o.Continue)
		request := resource + "/" + namespace
		if from > 0 {
			request += "+"
		}
		l.requests = append(l.requests, request)
		var found []runtime.Object
		for _, object := range l.objects[resource] {
			if namespace == "" || object.GetNamespace() == namespace {
				found = append(found, object.DeepCopyObject())
			}
		}
		page := &corev1.List{ListMeta: metav1.ListMeta{ResourceVersion: l.version}}
		to := min(len(found), from+int(o.Limit))
		if to < len(found) {
			page.Continue = strconv.Itoa(to)
		}
		err := errors.Join(l.fails, ctx.Err(), meta.SetList(page, found[from:to]))
		meanwhile := l.meanwhile
		l.mu.Unlock()
		if meanwhile != nil {
			meanwhile(resource)
		}
		return page, err
	}
}

func (l *lists) set(change func(*lists)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

func (l *lists) of(resource string) (requests []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, request := range l.requests {
		if strings.HasPrefix(request, resource+"/") {
			requests = append(requests, request)
		}
	}
	return requests
}

// ownHost returns a host that has spaces, and gets its events from its test.
func ownHost(t *testing.T, spaces ...string) (*Host, *lists) {
	t.Helper()
	h := &Host{Options: Options{OwnOnly: true}, Routers: map[string]*Router{}, own: ownSpaces{of: map[string]*ownSpace{}}}
	l := &lists{objects: map[string][]client.Object{}, version: "100"}
	for _, r := range resources.Table() {
		if r.Type == nil {
			continue
		}
		router := h.newRouter(r.Name, nil)
		router.clusterScoped, router.list = r.InCluster, l.list(r.Name)
		h.Routers[r.Name] = router
	}
	h.Routers[Quotas] = h.newRouter(Quotas, nil)
	h.Routers[Quotas].list = l.list(Quotas)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); h.stopOwn() })
	if err := h.Own(ctx, spaces...); err != nil {
		t.Fatal(err)
	}
	filled := h.startOwn(ctx)
	for _, r := range h.Routers {
		if err := r.Replace(nil, "1"); err != nil {
			t.Fatal(err)
		}
	}
	filled()
	return h, l
}

// of is what identifies a version of a host object.
func of(space, name, version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: translate.HostNamespacePrefix + space, Name: name, UID: types.UID(space + name), ResourceVersion: version,
		Labels:      map[string]string{translate.LabelSpace: space, translate.LabelNamespace: "default"},
		Annotations: map[string]string{translate.AnnotationName: name, translate.AnnotationNamespace: "default"},
	}
}

func podAt(space, name, version, ip string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: of(space, name, version), Spec: corev1.PodSpec{NodeName: "worker", Containers: []corev1.Container{{Name: "app", Image: "large"}}},
		Status: corev1.PodStatus{PodIP: ip, HostIP: "192.0.2.1", Phase: corev1.PodRunning},
	}
}

func configMap(space, name, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: of(space, name, version), Data: map[string]string{"key": "value"}}
}

func ingress(space, name, version, host string) *networkingv1.Ingress {
	return &networkingv1.Ingress{ObjectMeta: of(space, name, version), Spec: networkingv1.IngressSpec{
		IngressClassName: new("large"), Rules: []networkingv1.IngressRule{{Host: host}},
	}}
}

func volume(space, name, version string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: version},
		Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: translate.HostNamespacePrefix + space, Name: name}},
	}
}

// wantCached fails unless a router has these keys.
func wantCached(t *testing.T, h *Host, resource string, keys ...string) {
	t.Helper()
	if got := slices.Sorted(slices.Values(h.Router(resource).Keys())); !slices.Equal(got, keys) {
		t.Errorf("%s: the cache has %v, want %v", resource, got, keys)
	}
}

func mustOwn(t *testing.T, h *Host, spaces ...string) {
	t.Helper()
	if err := h.Own(t.Context(), spaces...); err != nil {
		t.Fatal(err)
	}
}

func wantSpaceAt(t *testing.T, h *Host, ip, want string) {
	t.Helper()
	if got, _ := h.SpaceAt(netip.MustParseAddr(ip)); got != want {
		t.Errorf("the pod at %s is of space %q, want %q", ip, got, want)
	}
}

func TestOfOtherSpacesOnlyAddressesAndClaimsAreCached(t *testing.T) {
	h, _ := ownHost(t, "a")
	var heard seen
	defer subscribe(t, h.Routers[resources.Pods], "b", &heard)()
	defer subscribe(t, h.Routers[resources.ConfigMaps], "b", &heard)()
	for _, space := range []string{"a", "b"} {
		put(t, h.Routers[resources.Pods], podAt(space, "web", "2", map[string]string{"a": "10.0.0.1", "b": "10.0.0.2"}[space]), podAt(space, "pending", "3", ""))
		put(t, h.Routers[resources.ConfigMaps], configMap(space, "settings", "2"))
		put(t, h.Routers[resources.Ingresses], ingress(space, "web", "2", space+".example.com"))
		put(t, h.Routers[resources.Volumes], volume(space, "pv-"+space, "2"))
		put(t, h.Routers[resources.Events], &corev1.Event{ObjectMeta: of(space, "event", "2")})
		put(t, h.Routers[Quotas], &corev1.ResourceQuota{ObjectMeta: of(space, "quota", "2")})
	}
	put(t, h.Routers[resources.StorageClasses], &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}})
	put(t, h.Routers[resources.Volumes], &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-free"}})

	wantCached(t, h, resources.Pods, "berth-a/pending", "berth-a/web", "berth-b/pending", "berth-b/web")
	wantCached(t, h, resources.ConfigMaps, "berth-a/settings")
	wantCached(t, h, resources.Ingresses, "berth-a/web", "berth-b/web")
	wantCached(t, h, resources.Volumes, "pv-a", "pv-free")
	wantCached(t, h, resources.Events, "berth-a/event")
	wantCached(t, h, Quotas, "berth-a/quota")
	wantCached(t, h, resources.StorageClasses, "fast")
	heard.want(t, "another process's space")

	wantSpaceAt(t, h, "10.0.0.1", "a")
	wantSpaceAt(t, h, "10.0.0.2", "b")
	if _, own := h.OwnSpaceAt(netip.MustParseAddr("10.0.0.2")); own || !h.IsNode("192.0.2.1") {
		t.Error("a pod of another space is known as an own one, or its node isn't known")
	}
	if _, whole := Get[*corev1.Pod](h, resources.Pods, "berth-b", "web"); whole || h.PodAt("b", netip.MustParseAddr("10.0.0.2")) != nil {
		t.Error("a reader of whole pods finds one of another space")
	}
	if !h.Claimed("b.example.com", nil, translate.Space{Name: "a"}, OwnNames{}) {
		t.Error("what another space claims is not known")
	}
	if o, _ := Get[*networkingv1.Ingress](h, resources.Ingresses, "berth-b", "web"); o == nil || o.Spec.IngressClassName != nil || len(o.Labels) > 0 {
		t.Errorf("of another space's ingress, this is cached: %v", o)
	}
	if own, other := h.CachedObjects(); own != 7 || other != 3 {
		t.Errorf("%d own objects and %d others, want 7 and 3", own, other)
	}
	put(t, h.Routers[resources.Pods], podAt("b", "web", "4", "10.0.0.3"))
	wantSpaceAt(t, h, "10.0.0.2", "")
	wantSpaceAt(t, h, "10.0.0.3", "b")
	for _, gone := range []*corev1.Pod{podAt("b", "web", "5", ""), podAt("b", "pending", "5", "")} {
		if err := h.Routers[resources.Pods].Delete(gone); err != nil {
			t.Error(err)
		}
	}
	wantCached(t, h, resources.Pods, "berth-a/pending", "berth-a/web")
}

// What the reflector collects for a list is reduced, too, so that a restart doesn't need the memory of all spaces.
func TestAListIsReducedBeforeItIsComplete(t *testing.T) {
	h, _ := ownHost(t, "a")
	transform := h.Routers[resources.ConfigMaps].Transformer()
	for space, want := range map[string]string{"a": "*v1.ConfigMap", "b": "*hostcache.otherObject", "": "*v1.ConfigMap"} {
		if got, err := transform(configMap(space, "settings", "2")); err != nil || fmt.Sprintf("%T", got) != want {
			t.Errorf("an object of space %q becomes a %T (%v), want %s", space, got, err, want)
		}
	}
}

func TestASpaceThatBecomesOwnIsCachedAsAWhole(t *testing.T) {
	h, l := ownHost(t, "a")
	l.objects = map[string][]client.Object{
		resources.Pods: {podAt("b", "web", "2", "10.0.0.2"), podAt("c", "web", "2", "10.0.0.3")}, resources.ConfigMaps: {configMap("b", "settings", "3")},
		resources.Ingresses: {ingress("b", "web", "4", "b.example.com")}, resources.Volumes: {volume("b", "pv-b", "5"), volume("c", "pv-c", "6")},
	}
	for resource, all := range l.objects { // as the watch has brought them
		for _, o := range all {
			put(t, h.Routers[resource], o.DeepCopyObject().(client.Object))
		}
	}
	if h.HasCached("b") {
		t.Error("the space is complete before it is listed")
	}
	mustOwn(t, h, "b")
	if !h.HasCached("b") {
		t.Error("the space is not complete")
	}
	var heard seen
	for _, resource := range []string{resources.Pods, resources.ConfigMaps, resources.Ingresses, resources.Volumes} {
		defer subscribe(t, h.Routers[resource], "b", &heard)()
	}
	heard.want(t, "a syncer that begins", "pv-b", "settings", "web", "web")
	if pod, ok := Get[*corev1.Pod](h, resources.Pods, "berth-b", "web"); !ok || len(pod.Spec.Containers) != 1 {
		t.Errorf("the pod is %v", pod)
	}
	if o, ok := Get[*networkingv1.Ingress](h, resources.Ingresses, "berth-b", "web"); !ok || o.Spec.IngressClassName == nil {
		t.Errorf("the ingress is %v", o)
	}
	wantCached(t, h, resources.Volumes, "pv-b")
	if own, ok := h.OwnSpaceAt(netip.MustParseAddr("10.0.0.2")); !ok || own != "b" {
		t.Errorf("the pod is of the own space %q", own)
	}
	if pods := l.of(resources.Pods); !slices.Equal(pods, []string{"pods/berth-b"}) {
		t.Errorf("lists of pods: %v", pods)
	}
	count := len(l.requests)
	if mustOwn(t, h, "a", "b"); len(l.requests) != count {
		t.Error("spaces that are cached were listed")
	}
}

func TestWhatIsCachedOfASpaceThatLeftIsReduced(t *testing.T) {
	h, _ := ownHost(t, "a", "b")
	for _, space := range []string{"a", "b"} {
		put(t, h.Routers[resources.Pods], podAt(space, "web", "2", map[string]string{"a": "10.0.0.1", "b": "10.0.0.2"}[space]))
		put(t, h.Routers[resources.ConfigMaps], configMap(space, "settings", "2"))
		put(t, h.Routers[resources.Ingresses], ingress(space, "web", "2", space+".example.com"))
		put(t, h.Routers[resources.Volumes], volume(space, "pv-"+space, "2"))
		h.stale.Store(Object{"gateways", types.NamespacedName{Namespace: translate.HostNamespacePrefix + space, Name: "stale"}}, &metav1.PartialObjectMetadata{})
	}
	if err := h.Disown("b"); err != nil {
		t.Fatal(err)
	}
	if own, other := h.CachedObjects(); own != 4 || other != 2 {
		t.Errorf("%d own objects and %d others, want 4 and 2", own, other)
	}
	if _, whole := Get[*corev1.Pod](h, resources.Pods, "berth-b", "web"); whole {
		t.Error("a whole pod is left")
	}
	wantSpaceAt(t, h, "10.0.0.2", "b")
	wantCached(t, h, resources.Volumes, "pv-a")
	if !h.Claimed("b.example.com", nil, translate.Space{Name: "a"}, OwnNames{}) {
		t.Error("what the space claims is forgotten")
	}
	left := 0
	for range h.stale.Range {
		left++
	}
	if left != 1 {
		t.Errorf("%d stale objects are left, want 1", left)
	}
}

// While the DNS of the pods of a space that has left is still here, it is answered from the cache.
func TestWhereTheDNSOfASpaceIsIsKnown(t *testing.T) {
	h, _ := ownHost(t, "a")
	here, there := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.8")
	if h.HasDNSAt("a", here) {
		t.Error("a space without an object for its DNS has it here")
	}
	space := translate.Space{Name: "a", Pods: translate.PodsEndpoint{Address: here, DNSPort: 53, APIPort: 443}}
	for _, slice := range space.PodsEndpoints() {
		put(t, h.Routers[resources.EndpointSlices], slice)
	}
	if !h.HasDNSAt("a", here) || h.HasDNSAt("a", there) || h.HasDNSAt("b", here) {
		t.Error("the DNS of the space is somewhere else")
	}
}

// A space that comes back before it was reduced, keeps its objects.
func TestASpaceThatComesBackIsNotReduced(t *testing.T) {
	h, l := ownHost(t, "a", "b")
	l.objects[resources.ConfigMaps] = []client.Object{configMap("b", "settings", "2")}
	put(t, h.Routers[resources.ConfigMaps], configMap("b", "settings", "2"))
	reduce := h.BeginDisown("b")
	mustOwn(t, h, "b")
	if err := reduce(); err != nil {
		t.Fatal(err)
	}
	wantCached(t, h, resources.ConfigMaps, "berth-b/settings")
}

// An object of a space may become one of another process's: a volume that gets another claim.
func TestAnObjectLeavesForAnotherSpace(t *testing.T) {
	h, _ := ownHost(t, "a")
	var heard seen
	put(t, h.Routers[resources.Volumes], volume("a", "pv", "2"))
	defer subscribe(t, h.Routers[resources.Volumes], "a", &heard)()
	heard.want(t, "at first", "pv")
	put(t, h.Routers[resources.Volumes], volume("b", "pv", "3"))
	heard.want(t, "when it leaves", "pv")
	wantCached(t, h, resources.Volumes)
}

// Attack: a tenant of another process makes thousands of objects. What is kept of them is the addresses of pods.
func TestATenantElsewhereCostsAddressesOfPods(t *testing.T) {
	h, _ := ownHost(t, "a")
	const attack = 5000
	for i := range attack {
		name := fmt.Sprint("attack-", i)
		c := configMap("evil", name, "2")
		c.Annotations["large"] = strings.Repeat("x", 10<<10)
		pod := podAt("evil", name, "2", netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String())
		pod.Annotations["large"] = strings.Repeat("x", 10<<10)
		put(t, h.Routers[resources.ConfigMaps], c)
		put(t, h.Routers[resources.Pods], pod)
		put(t, h.Routers[resources.Events], &corev1.Event{ObjectMeta: of("evil", name, "2")})
	}
	if own, other := h.CachedObjects(); own != 0 || other != attack {
		t.Errorf("%d own objects and %d others, want none and %d", own, other, attack)
	}
	size := int64(0)
	for _, item := range h.Routers[resources.Pods].All() {
		size += heapsize.Of(item)
	}
	if most := int64(600); size/attack > most {
		t.Errorf("a pod of another process's space takes %d bytes, want %d at most", size/attack, most)
	}
	if err := h.Routers[resources.Pods].Replace(nil, "3"); err != nil {
		t.Fatal(err)
	}
	wantCached(t, h, resources.Pods)
}
