// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"gopkg.in/go-jose/go-jose.v2/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/translate"
)

// S6, A3: kubernetes.default is the API of the pod's own space, by whatever name
// clients call it, with what every pod has. It wakes a space that sleeps.
func TestPodsReachTheirSpacesAPI(t *testing.T) {
	in := startInside(t)
	a := virtual(t, startSpace(t, in.Shard, "api-a"))
	b := virtual(t, startSpace(t, in.Shard, "api-b"))
	in.runs(t, a, "api-a", "caller", "127.0.2.1")
	in.runs(t, b, "api-b", "caller", "127.0.2.2")
	var ca []byte
	testhost.Eventually(t, "kube-root-ca.crt", func(ctx context.Context) error {
		root, err := a.CoreV1().ConfigMaps("default").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if err == nil {
			ca = []byte(root.Data["ca.crt"])
		}
		return err
	})
	token := podToken(t, a)
	// A bare pod may ask who it is.
	ask := func(c *rest.Config) (string, error) {
		client, err := kubernetes.NewForConfig(c)
		if err != nil {
			return "", err
		}
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		return review.Status.UserInfo.Username, nil
	}
	const account = "system:serviceaccount:default:default"
	for _, name := range []string{"kubernetes.default.svc", "kubernetes.default", "kubernetes", "kubernetes.default.svc.cluster.local", in.address("api-a")} {
		if who, err := ask(in.inCluster("127.0.2.1", name, token, ca)); err != nil || who != account {
			t.Errorf("at %s the pod is %q: %v", name, who, err)
		}
	}
	in.falls(t, "api-a")
	if who, err := ask(in.inCluster("127.0.2.1", "kubernetes.default.svc", token, ca)); err != nil || who != account {
		t.Errorf("asleep, the pod is %q: %v", who, err)
	}
	in.is(t, "api-a", shard.ReasonRunning, metav1.ConditionTrue)

	t.Run("the documents of its token's issuer are where the issuer's URL says", func(t *testing.T) {
		parsed, err := jwt.ParseSigned(token)
		if err != nil {
			t.Fatal(err)
		}
		var claims jwt.Claims
		if err := parsed.UnsafeClaimsWithoutVerification(&claims); err != nil {
			t.Fatal(err)
		}
		issuer, err := url.Parse(claims.Issuer)
		if err != nil {
			t.Fatal(err)
		}
		client := testhost.Clientset(t, in.inCluster("127.0.2.1", issuer.Host, token, ca)).CoreV1().RESTClient()
		document, err := client.Get().AbsPath(issuer.Path + "/.well-known/openid-configuration").DoRaw(t.Context())
		if err != nil || !strings.Contains(string(document), `"issuer":"`+claims.Issuer+`"`) {
			t.Errorf("%s says %s (%v)", claims.Issuer, document, err)
		}
		keys, err := client.Get().AbsPath(issuer.Path + "/openid/v1/jwks").DoRaw(t.Context())
		if err != nil || !strings.Contains(string(keys), parsed.Headers[0].KeyID) {
			t.Errorf("the keys are %s (%v)", keys, err)
		}
	})
	t.Run("another space's pod gets its own API, where the token is worthless", func(t *testing.T) {
		if who, err := ask(in.inCluster("127.0.2.2", "kubernetes.default.svc", token, ca)); !apierrors.IsUnauthorized(err) {
			t.Errorf("it is %q: %v", who, err)
		}
		if _, err := ask(in.inCluster("127.0.2.2", in.address("api-a"), token, ca)); err == nil || apierrors.IsUnauthorized(err) {
			t.Errorf("the certificate is good for another space's address: %v", err)
		}
	})
	t.Run("a stranger gets no connection", func(t *testing.T) {
		if _, err := ask(in.inCluster("127.0.2.9", "kubernetes.default.svc", token, ca)); err == nil {
			t.Error("it was answered")
		}
	})
	t.Run("paths lead nowhere else", func(t *testing.T) {
		c := in.inCluster("127.0.2.1", "kubernetes.default.svc", token, ca)
		for _, path := range []string{
			"/spaces/api-b/version", "/spaces/system/version", "/spaces/api-a/version", "/spaces/api-b/.well-known/openid-configuration",
		} {
			var code int
			err := testhost.Clientset(t, c).CoreV1().RESTClient().Get().AbsPath(path).Do(t.Context()).StatusCode(&code).Error()
			if err == nil || code != http.StatusForbidden && code != http.StatusNotFound {
				t.Errorf("%s answers %d: %v", path, code, err)
			}
		}
	})
	t.Run("a connection ends with its pod", func(t *testing.T) {
		conn, err := tls.DialWithDialer(&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.2.2")}}, "tcp4", in.api,
			&tls.Config{InsecureSkipVerify: true}) // whom it talks to is not the question
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		of := translate.Space{Name: "api-b"}
		err = testhost.Clientset(t, theHost(t).Config()).CoreV1().Pods(of.HostNamespace()).Delete(t.Context(),
			of.HostName("default", "caller", translate.LimitSubdomain), *metav1.NewDeleteOptions(0))
		if err != nil {
			t.Fatal(err)
		}
		testhost.Eventually(t, "the pod is gone", func(context.Context) error {
			if space, ok := in.Host().SpaceAt(netip.MustParseAddr("127.0.2.2")); ok {
				return fmt.Errorf("the address is %s's", space)
			}
			return nil
		})
		if _, err := fmt.Fprintf(conn, "GET /version HTTP/1.1\r\nHost: kubernetes\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 12)
		if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "HTTP/1.1 421" {
			t.Errorf("the connection of a pod that is gone is answered %q: %v", answer, err)
		}
	})
}
