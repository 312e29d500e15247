// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster/pki"
)

const (
	// EndpointSecret is the name of the Secret with the CA of the platform's endpoint, which all shards have.
	EndpointSecret = "berth-shards"
	// PodsSecret is that with the CA of the connections to the pods of dedicated spaces. No Secret of a space has such a name.
	PodsSecret = "berth-shards-pods"
	// authorityInterval is how often a shard looks whether another one has renewed or rotated a CA.
	authorityInterval = time.Minute
)

// authority keeps the CA in a directory and the one in a Secret the same. One goroutine uses it.
type authority struct {
	host                        client.Client
	namespace, secret, platform string
	dir                         string
	ca                          *pki.CA       // open on dir
	renewed                     chan struct{} // has an element if the CA was renewed here
	// shared are the files as they were last seen to be the same in both.
	shared map[string][]byte
}

// OpenCA opens the CA in a directory, which is made if there is none. If p isn't nil, it becomes that of all shards, which is in a Secret,
// and [Peers.Run] keeps both the same. So OpenCA must be called before Run.
func (p *Peers) OpenCA(ctx context.Context, secret, dir, name string) (*pki.CA, error) {
	if p == nil {
		return pki.OpenCA(dir, name)
	}
	if files, err := pki.Files(dir); err != nil {
		return nil, err
	} else if len(files) == 0 { // the one that it gets here is used if this is the first shard
		if _, err := pki.OpenCA(dir, name); err != nil {
			return nil, err
		}
	}
	a := &authority{host: p.host, namespace: p.config.Namespace, secret: secret, platform: p.config.Platform, dir: dir, renewed: make(chan struct{}, 1)}
	_, err := a.share(ctx)
	if err == nil {
		a.ca, err = pki.OpenCA(dir, name)
	}
	if err != nil {
		return nil, err
	}
	a.ca.OnRenewal(func() {
		select {
		case a.renewed <- struct{}{}:
		default:
		}
	})
	p.authorities = append(p.authorities, a)
	return a.ca, nil
}

// share makes the CA in the directory that of the Secret. The first shard of a platform creates the Secret, with the CA that it has
// already, if any. changed says that the files in the directory are others now.
func (a *authority) share(ctx context.Context) (changed bool, err error) {
	for {
		changed, err = a.shareOnce(ctx)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) { // else, another shard was first
			break
		}
	}
	if err != nil {
		return false, fmt.Errorf("share the CA with the other shards by Secret %s/%s: %w", a.namespace, a.secret, err)
	}
	return changed, nil
}

func (a *authority) shareOnce(ctx context.Context) (changed bool, err error) {
	own, err := pki.Files(a.dir)
	if err != nil {
		return false, err
	}
	secret := &corev1.Secret{}
	err = a.host.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: a.secret}, secret)
	if apierrors.IsNotFound(err) {
		return false, a.create(ctx, own)
	}
	if err != nil {
		return false, err
	}
	if secret.Labels[translate.LabelPlatform] != a.platform {
		return false, fmt.Errorf("the Secret has the label %s=%q, and this platform is %q; delete it, or run this platform in another namespace", translate.LabelPlatform, secret.Labels[translate.LabelPlatform], a.platform)
	}
	switch {
	case same(own, secret.Data):
		a.shared = own
		return false, nil
	case a.shared != nil && same(a.shared, secret.Data): // renewed or rotated here
		secret.Data = own
		if err := a.host.Update(ctx, secret); err != nil {
			return false, err
		}
		a.shared = own
		return false, nil
	}
	if err := pki.Install(a.dir, secret.Data); err != nil {
		return false, err
	}
	a.shared = secret.Data
	return true, nil
}

func (a *authority) create(ctx context.Context, own map[string][]byte) error {
	if len(own) == 0 {
		return errors.New("the CA is missing on both sides")
	}
	err := a.host.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: a.secret, Labels: map[string]string{translate.LabelPlatform: a.platform}},
		Type:       corev1.SecretTypeOpaque, Data: own,
	})
	if err == nil {
		a.shared = own
	}
	return err
}

func same(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, bytes.Equal) }

// keep calls share at intervals, and when the CA was renewed here, until ctx ends.
func (a *authority) keep(ctx context.Context, logger klog.Logger) {
	ticker := time.NewTicker(authorityInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-a.renewed:
		}
		changed, err := a.share(ctx)
		if err == nil && changed {
			err = a.ca.Reload()
		}
		if err != nil && ctx.Err() == nil {
			logger.Error(err, "Could not compare a CA with that of the other shards; Berth retries", "after", authorityInterval)
		}
	}
}
