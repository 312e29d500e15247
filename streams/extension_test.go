// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/sample-apiserver/pkg/apis/wardle"
	sample "k8s.io/sample-apiserver/pkg/apiserver"
	sampleopenapi "k8s.io/sample-apiserver/pkg/generated/openapi"

	"github.com/berth-dev/berth/vcluster/pki"
)

// extension is an API server that extends a space's, made of upstream's parts with
// their default settings, as its pod would be.
type extension struct {
	port     int
	ca       []byte
	flunders *flunders
}

// startExtension serves flunders on this machine, as kubelet has all pods of a
// space do. It asks the space who its callers are and what they may.
func (s *space) startExtension(t *testing.T) *extension {
	t.Helper()
	dir := t.TempDir()
	ca, err := pki.OpenCA(filepath.Join(dir, "ca"), "hook")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server("hook.default.svc")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, kubeconfig := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "kubeconfig")
	for path, content := range map[string][]byte{cert: pair.Cert, key: pair.Key, kubeconfig: s.delegator(t)} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &extension{port: listener.Addr().(*net.TCPAddr).Port, ca: ca.PEM(), flunders: newFlunders()}
	t.Cleanup(e.flunders.events.Shutdown)

	c := genericapiserver.NewRecommendedConfig(sample.Codecs)
	c.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	names := openapi.NewDefinitionNamer(sample.Scheme)
	c.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(sampleopenapi.GetOpenAPIDefinitions, names)
	c.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(sampleopenapi.GetOpenAPIDefinitions, names)
	serving := serveroptions.NewSecureServingOptions().WithLoopback()
	serving.Listener, serving.BindPort = listener, e.port
	serving.ServerCert.CertKey.CertFile, serving.ServerCert.CertKey.KeyFile = cert, key
	if err := serving.ApplyTo(&c.SecureServing, &c.LoopbackClientConfig); err != nil {
		t.Fatal(err)
	}
	authentication := serveroptions.NewDelegatingAuthenticationOptions()
	authentication.RemoteKubeConfigFile = kubeconfig
	if err := authentication.ApplyTo(&c.Authentication, c.SecureServing, c.OpenAPIConfig); err != nil {
		t.Fatal(err)
	}
	authorization := serveroptions.NewDelegatingAuthorizationOptions()
	authorization.RemoteKubeConfigFile = kubeconfig
	if err := authorization.ApplyTo(&c.Authorization); err != nil {
		t.Fatal(err)
	}
	server, err := c.Complete().New("extension", genericapiserver.NewEmptyDelegate())
	if err != nil {
		t.Fatal(err)
	}
	group := genericapiserver.NewDefaultAPIGroupInfo(wardle.GroupName, sample.Scheme, metav1.ParameterCodec, sample.Codecs)
	group.VersionedResourcesStorageMap["v1alpha1"] = map[string]rest.Storage{"flunders": e.flunders}
	if err := server.InstallAPIGroup(&group); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.PrepareRun().RunWithContext(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return e
}

// delegator is the kubeconfig of a service account with the rights that charts of
// such servers give.
func (s *space) delegator(t *testing.T) []byte {
	t.Helper()
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "extension"}
	if _, err := s.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: account.Name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "extension"}, Subjects: []rbacv1.Subject{account},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RbacV1().RoleBindings("kube-system").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "extension"}, Subjects: []rbacv1.Subject{account},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "extension-apiserver-authentication-reader"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := s.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := clientcmdapi.NewConfig()
	c.Clusters["space"] = &clientcmdapi.Cluster{Server: s.config.Host, CertificateAuthorityData: s.config.CAData}
	c.AuthInfos["pod"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	c.Contexts["space"] = &clientcmdapi.Context{Cluster: "space", AuthInfo: "pod"}
	c.CurrentContext = "space"
	kubeconfig, err := clientcmd.Write(*c)
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// flunders are kept in memory, with who asked for what.
type flunders struct {
	rest.TableConvertor
	events *watch.Broadcaster

	mu    sync.Mutex
	kept  map[string]*wardle.Flunder
	asked []string
}

func newFlunders() *flunders {
	return &flunders{
		TableConvertor: rest.NewDefaultTableConvertor(wardle.Resource("flunders")),
		events:         watch.NewBroadcaster(10, watch.DropIfChannelFull), kept: map[string]*wardle.Flunder{},
	}
}

func (f *flunders) note(ctx context.Context, verb string) {
	by, _ := request.UserFrom(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, fmt.Sprint(by.GetName(), by.GetGroups(), " ", verb))
}

func (f *flunders) heard() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.asked...)
}

func (*flunders) New() runtime.Object     { return &wardle.Flunder{} }
func (*flunders) NewList() runtime.Object { return &wardle.FlunderList{} }
func (*flunders) Destroy()                {}
func (*flunders) NamespaceScoped() bool   { return true }
func (*flunders) GetSingularName() string { return "flunder" }

func (f *flunders) Create(ctx context.Context, o runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	f.note(ctx, "create")
	if err := validate(ctx, o); err != nil {
		return nil, err
	}
	flunder, ok := o.(*wardle.Flunder)
	if !ok {
		return nil, apierrors.NewBadRequest("no flunder")
	}
	flunder.Namespace = request.NamespaceValue(ctx)
	f.mu.Lock()
	f.kept[flunder.Namespace+"/"+flunder.Name] = flunder
	f.mu.Unlock()
	return flunder, f.events.Action(watch.Added, flunder.DeepCopy())
}

func (f *flunders) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	f.note(ctx, "get")
	f.mu.Lock()
	defer f.mu.Unlock()
	if flunder := f.kept[request.NamespaceValue(ctx)+"/"+name]; flunder != nil {
		return flunder.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(wardle.Resource("flunders"), name)
}

func (f *flunders) List(ctx context.Context, _ *internalversion.ListOptions) (runtime.Object, error) {
	f.note(ctx, "list")
	f.mu.Lock()
	defer f.mu.Unlock()
	list := &wardle.FlunderList{}
	for _, flunder := range f.kept {
		if in := request.NamespaceValue(ctx); in == "" || flunder.Namespace == in {
			list.Items = append(list.Items, *flunder)
		}
	}
	return list, nil
}

func (f *flunders) Watch(ctx context.Context, _ *internalversion.ListOptions) (watch.Interface, error) {
	f.note(ctx, "watch")
	return f.events.Watch()
}

func (f *flunders) Delete(
	ctx context.Context, name string, _ rest.ValidateObjectFunc, _ *metav1.DeleteOptions,
) (runtime.Object, bool, error) {
	f.note(ctx, "delete")
	f.mu.Lock()
	defer f.mu.Unlock()
	key := request.NamespaceValue(ctx) + "/" + name
	flunder := f.kept[key]
	if flunder == nil {
		return nil, false, apierrors.NewNotFound(wardle.Resource("flunders"), name)
	}
	delete(f.kept, key)
	return flunder, true, nil
}
