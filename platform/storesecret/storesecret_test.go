// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storesecret_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/platform/storesecret"
)

// secrets is a host that has Secrets, by their keys.
type secrets map[client.ObjectKey]corev1.Secret

func (s secrets) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	secret, ok := s[key]
	if !ok {
		return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
	}
	secret.DeepCopyInto(into.(*corev1.Secret))
	return nil
}

func (secrets) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("lists need another right")
}

func TestASpaceGetsTheDatabaseOfASecretThatIsForIt(t *testing.T) {
	secret := func(space, dsn string) corev1.Secret {
		s := corev1.Secret{Data: map[string][]byte{"dsn": []byte(dsn), "ca.crt": []byte("ca"), "tls.crt": []byte("cert"), "tls.key": []byte("key")}}
		s.Labels = map[string]string{"berth.dev/space": space}
		return s
	}
	host := secrets{
		{Namespace: "platform", Name: "own"}:   secret("team-a", "secret-dsn"),
		{Namespace: "platform", Name: "other"}: secret("team-b", "secret-dsn"),
		{Namespace: "platform", Name: "plain"}: {Data: map[string][]byte{"dsn": []byte("secret-dsn")}},
		{Namespace: "platform", Name: "empty"}: secret("team-a", ""),
		{Namespace: "team-a", Name: "theirs"}:  secret("team-a", "secret-dsn"),
	}
	cases := map[string]struct {
		reason, namespace string
		store             v1alpha1.Store
		want              *kine.Server
		says              string
	}{
		"File":       {"It is the default.", "platform", v1alpha1.Store{}, nil, ""},
		"SQLite":     {"It is a file.", "platform", v1alpha1.Store{Type: v1alpha1.StoreSQLite}, nil, ""},
		"PostgreSQL": {"The Secret is for the space.", "platform", v1alpha1.Store{Type: v1alpha1.StorePostgreSQL, SecretName: "own"}, &kine.Server{Type: kine.PostgreSQL, DSN: "secret-dsn", CA: []byte("ca")}, ""},
		"MySQL":      {"The Secret is for the space.", "platform", v1alpha1.Store{Type: v1alpha1.StoreMySQL, SecretName: "own"}, &kine.Server{Type: kine.MySQL, DSN: "secret-dsn", CA: []byte("ca")}, ""},
		"Etcd":       {"Its clients may have certificates.", "platform", v1alpha1.Store{Type: v1alpha1.StoreEtcd, SecretName: "own"}, &kine.Server{Type: kine.Etcd, DSN: "secret-dsn", CA: []byte("ca"), Cert: []byte("cert"), Key: []byte("key")}, ""},
		"NATS":       {"Its clients may have certificates.", "platform", v1alpha1.Store{Type: v1alpha1.StoreNATS, SecretName: "own"}, &kine.Server{Type: kine.NATS, DSN: "secret-dsn", CA: []byte("ca"), Cert: []byte("cert"), Key: []byte("key")}, ""},
		"S3":         {"Its clients may have certificates.", "platform", v1alpha1.Store{Type: v1alpha1.StoreS3, SecretName: "own"}, &kine.Server{Type: kine.S3, DSN: "secret-dsn", CA: []byte("ca"), Cert: []byte("cert"), Key: []byte("key")}, ""},
		"Others":     {"S: it is another space's.", "platform", v1alpha1.Store{Type: v1alpha1.StoreMySQL, SecretName: "other"}, nil, "not for this space"},
		"Unlabelled": {"S: nobody has said whose it is.", "platform", v1alpha1.Store{Type: v1alpha1.StoreMySQL, SecretName: "plain"}, nil, "berth.dev/space=team-a"},
		"Elsewhere":  {"S: only one namespace is read.", "platform", v1alpha1.Store{Type: v1alpha1.StoreMySQL, SecretName: "theirs"}, nil, "not found"},
		"NoDSN":      {"The key is missing.", "platform", v1alpha1.Store{Type: v1alpha1.StoreMySQL, SecretName: "empty"}, nil, "no key dsn"},
		"Off":        {"The admin has to allow it.", "", v1alpha1.Store{Type: v1alpha1.StoreMySQL, SecretName: "own"}, nil, "--store-secrets"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := storesecret.Read(t.Context(), host, c.namespace, "team-a", c.store)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: %s", c.reason, diff)
			}
			if (err != nil) != (c.says != "") || err != nil && (!errors.Is(err, kine.ErrServer) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret-dsn")) {
				t.Errorf("error = %v, want one that says %q. %s", err, c.says, c.reason)
			}
		})
	}
}
