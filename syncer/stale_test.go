// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// S1, M4: of each disabled resource the copies are deleted: from the host, where
// nobody would look after it any more, or from the space, where it would show
// what is not there. Data stay, and what they are made by.
func TestWhatIsSwitchedOffGoesButForData(t *testing.T) {
	t.Parallel()
	testSwitchedOff(t, "disabled", func(env *testEnv, off resources.SyncOptions) {
		env.options = syncer.Options{Sync: off}
	})
}

// S1, M4, T7: so are those of one space, which syncs less than the host offers to others.
func TestWhatOneSpaceSwitchesOffGoesButForData(t *testing.T) {
	t.Parallel()
	testSwitchedOff(t, "less", func(env *testEnv, off resources.SyncOptions) { env.sync = &off })
}

func testSwitchedOff(t *testing.T, name string, switchOff func(env *testEnv, off resources.SyncOptions)) {
	t.Helper()
	env, host, space := everyResourceOn(t, name)
	const stays, goes = true, false
	core, network := corev1.GroupName, networkingv1.GroupName
	table := map[string]struct {
		group  string
		in     client.Client
		after  bool
		reason string
	}{
		"pods":                   {core, host, goes, "the tenant could not end them"},
		"services":               {core, host, goes, "their addresses lead to pods that are gone"},
		"endpointslices":         {discoveryv1.GroupName, host, goes, "they lead where nobody looks any more"},
		"configmaps":             {core, host, goes, "they are copies"},
		"secrets":                {core, host, goes, "they are copies"},
		"persistentvolumeclaims": {core, host, stays, "they are data"},
		"ingresses":              {network, host, goes, "the host would go on to serve them"},
		"networkpolicies":        {network, host, goes, "Berth's own policies are what holds then"},
		"poddisruptionbudgets":   {policyv1.GroupName, host, goes, "they would hold back drains"},
		"serviceaccounts":        {core, host, goes, "they are identities"},
		"ownpriorityclasses":     {"scheduling.k8s.io", host, stays, "pods are of them"},
		"ownstorageclasses":      {"storage.k8s.io", host, stays, "volumes are of them"},
		"ownpersistentvolumes":   {core, host, stays, "they lead to data"},
		"resourceclaims":         {resourcev1.GroupName, host, goes, "no pod can use them"},
		"volumesnapshots":        {snapshotv1.GroupName, host, stays, "they are data"},
		"gateways":               {"gateway.networking.k8s.io", host, goes, "the host would go on to serve them"},
		"httproutes":             {"gateway.networking.k8s.io", host, goes, "the host would go on to serve them"},
		"nodes":                  {core, space, goes, "there are none"},
		"persistentvolumes":      {core, space, stays, "they stand for data"},
		"events":                 {core, space, stays, "they go by themselves"},
		"storageclasses":         {"storage.k8s.io", space, goes, "none is for the space"},
		"ingressclasses":         {network, space, goes, "none is for the space"},
		"runtimeclasses":         {nodev1.GroupName, space, goes, "none is for the space"},
		"priorityclasses":        {"scheduling.k8s.io", space, goes, "none is for the space"},
		"volumesnapshotclasses":  {snapshotv1.GroupName, space, stays, "they come back with their definition"},
		"gatewayclasses":         {"gateway.networking.k8s.io", space, stays, "they come back with their definition"},
	}
	var off []string
	for _, k := range resources.Table() {
		value := resources.Off
		if k.Name == resources.Pods {
			value = resources.OffAndDeletePods
		}
		off = append(off, k.Name+"="+value)
		if table[k.Name].reason == "" && k.Direction != resources.InSpace { // of which there is nothing on the other side
			t.Errorf("nothing says what becomes of %s", k.Name)
		}
	}
	there := func(ctx context.Context, kind string) (n int, err error) {
		of := table[kind]
		resource := map[string]string{"ownpriorityclasses": "priorityclasses", "ownstorageclasses": "storageclasses", "ownpersistentvolumes": "persistentvolumes"}[kind]
		if resource == "" {
			resource = kind
		}
		gvk, err := of.in.RESTMapper().KindFor(schema.GroupVersionResource{Group: of.group, Resource: resource})
		if err != nil {
			return 0, err
		}
		all := &metav1.PartialObjectMetadataList{}
		all.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := of.in.List(ctx, all); err != nil {
			return 0, err
		}
		for i := range all.Items {
			o := &all.Items[i]
			id, synced := translate.IdentityOf(o)
			switch {
			case of.in == space && kind == "events", of.in == space && o.Labels[translate.LabelManagedBy] == translate.ManagedBy:
				n++
			case of.in == host && synced && id.Space == env.space.Name && (kind != "services" || id.Name != "kubernetes"):
				n++
			}
		}
		return n, nil
	}
	for kind := range table {
		testhost.Eventually(t, "see "+kind, func(ctx context.Context) error {
			n, err := there(ctx, kind)
			if n == 0 && err == nil {
				err = errors.New("there is none")
			}
			return err
		})
	}
	env.idle(t)
	if err := env.kill(); err != nil {
		t.Fatal(err)
	}
	syncOptions, err := resources.Parse(off)
	if err != nil {
		t.Fatal(err)
	}
	switchOff(env, syncOptions)
	env.build(t) // for the rights that are left
	env.begin(nil)
	env.idle(t)
	for kind, want := range table {
		if want.after == stays {
			if n, err := there(t.Context(), kind); err != nil || n == 0 {
				t.Errorf("%s went (%v), but %s", kind, err, want.reason)
			}
			continue
		}
		testhost.Eventually(t, "see "+kind+" gone, as "+want.reason, func(ctx context.Context) error {
			n, err := there(ctx, kind)
			if n > 0 {
				err = fmt.Errorf("there are %d", n)
			}
			return err
		})
	}
	api := env.space.HostName("default", "kubernetes", translate.LimitLabel)
	if _, err := env.host.CoreV1().Services(env.space.HostNamespace()).Get(t.Context(), api, metav1.GetOptions{}); err != nil {
		t.Errorf("the space's API has no address any more: %v", err)
	}
}

// everyResourceOn is a space with one object of each kind at least, all synced.
func everyResourceOn(t *testing.T, name string) (env *testEnv, host, space client.Client) {
	t.Helper()
	host = extended(t, theHost(t).Config())
	define(t, host)
	defineGateways(t, host)
	shown := map[string]string{name: "true"}
	label := name + "=true"
	var syncOptions []string
	for _, k := range resources.Table() {
		value := k.Values[len(k.Values)-1]
		switch value {
		case resources.Selector:
			value = label
		case resources.PreemptingBound:
			value = "100" // as in all tests: they share what the host is guarded by
		case resources.Provisioners:
			value = provisioner
		case resources.Handles:
			value = ownDisks
		case resources.Off, resources.OffAndDeletePods:
			value = k.Values[0]
		}
		if slices.Contains(k.Values, resources.All) {
			value = resources.All
		}
		syncOptions = append(syncOptions, k.Name+"="+value)
	}
	made := func(o client.Object) {
		t.Helper()
		o.SetName(name)
		o.SetLabels(shown)
		testhost.Eventually(t, "make a class", func(ctx context.Context) error { return host.Create(ctx, o) }) // discovery lags
		t.Cleanup(func() { _ = host.Delete(context.Background(), o) })
	}
	made(&snapshotv1.VolumeSnapshotClass{Driver: "csi.host.example", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete})
	made(newGatewayClass())
	made(&networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{Controller: "host.example/controller"}})
	made(&nodev1.RuntimeClass{Handler: "of-the-host"})
	made(priorityClass("", 5))
	made(storageClassOf("", provisioner))
	env = newEnv(t, name)
	env.counts(name, 1)
	env.syncing(t, syncOptions...)
	if err := isolation.InstallPolicies(t.Context(), host, env.options.Sync); err != nil {
		t.Fatal(err)
	}
	space = extended(t, env.toPlane())

	pod := newPod("web")
	pod.Spec.ServiceAccountName = "builder"
	Served(t, space, priorityClass("own", 3))
	Served(t, space, storageClassOf("own", provisioner))
	Served(t, space, ownVolume("own", name+"/own"))
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Selector: pod.Labels, Ports: []corev1.ServicePort{{Port: 80}}}}
	manual := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "manual"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "manual", Labels: map[string]string{discoveryv1.LabelServiceName: "manual"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"203.0.113.20"}}},
	}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "builder"}}, newConfigMap("config"), newSecret("secret"),
		newClaimOf("data", name), claimOf("own", "own"), service, manual, slice, pod,
		newIngress("shop", name, "ingress."+name+".example"), claimOfDevice("gpu", name),
		&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "open"}},
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "budget"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}}},
		snapshotOf("nightly", "data", name), newGateway("shop", name, "gateway."+name+".example"), newRoute("shop", "shop", "gateway."+name+".example", "web"),
	} {
		o.SetNamespace("default")
		Served(t, space, o)
	}
	return env, host, space
}

// M4: of a disabled resource only the space's own objects are deleted: nothing that merely says
// so, nor what took a name that was the space's.
func TestWhatIsNotTheSpacesStaysWhateverIsSwitchedOff(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "narrow")
	syncOptions, err := resources.Parse([]string{"configmaps=off"})
	if err != nil {
		t.Fatal(err)
	}
	env.options = syncer.Options{Sync: syncOptions}
	env.build(t)
	of := func(space, name string) *corev1.ConfigMap {
		v := newConfigMap(name)
		v.Namespace, v.UID = "default", "u"
		h := &corev1.ConfigMap{ObjectMeta: translate.Space{Name: space}.ObjectMeta(v, translate.LimitSubdomain)}
		h.Namespace = env.space.HostNamespace()
		return h
	}
	there := env.host.CoreV1().ConfigMaps(env.space.HostNamespace())
	unnamed, elsewhere := of("narrow", "unnamed"), of("narrow", "elsewhere")
	unnamed.Annotations, elsewhere.Namespace = nil, metav1.NamespaceDefault
	for _, o := range []*corev1.ConfigMap{of("narrow", "goes"), of("narrow", "replaced"), of("another", "of-another"), unnamed, elsewhere} {
		must(t, env.host.CoreV1().ConfigMaps(o.Namespace).Create, o)
		t.Cleanup(func() {
			_ = env.host.CoreV1().ConfigMaps(o.Namespace).Delete(context.Background(), o.Name, metav1.DeleteOptions{})
		})
	}
	replaced := of("narrow", "replaced").Name
	var once sync.Once
	env.begin(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		if c.to == toHost && c.Method == http.MethodDelete && strings.HasSuffix(c.URL.Path, "/"+replaced) {
			once.Do(func() {
				err := there.Delete(t.Context(), replaced, metav1.DeleteOptions{})
				if err == nil {
					_, err = created(t.Context(), there.Create, of("narrow", "replaced"))
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		return send()
	})
	awaitedGone(t, "see its own gone", there.Get, of("narrow", "goes").Name)
	env.idle(t)
	for _, o := range []*corev1.ConfigMap{of("narrow", "replaced"), of("another", "of-another"), unnamed, elsewhere} {
		if _, err := env.host.CoreV1().ConfigMaps(o.Namespace).Get(t.Context(), o.Name, metav1.GetOptions{}); err != nil {
			t.Errorf("%s/%s went: %v", o.Namespace, o.Name, err)
		}
	}
}
