// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// client writes to an object, and reads it. Only one goroutine calls once.
type client struct {
	api        rest.Interface
	disconnect func()
	name       string
	note       func(took time.Duration, err error)

	object *corev1.ConfigMap // as it was written last; nil if that isn't known
	value  int
	read   bool // whether the next request reads

	mu       sync.Mutex
	answered time.Time // when the last request began that was answered
}

// newClient makes a client of a space that has a connection of its own.
func newClient(target Target, timeout time.Duration, name string) (*client, error) {
	config := rest.CopyConfig(target.Config)
	config.QPS, config.Timeout = -1, timeout
	if config.Dial == nil {
		config.Dial = (&net.Dialer{}).DialContext
	}
	dial := config.Dial
	// A function of its own gives the client a connection of its own: client-go shares those of equal configurations.
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return dial(ctx, network, address)
	}
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of space %s: %w", target.Space, err)
	}
	set, err := kubernetes.NewForConfigAndClient(config, h)
	if err != nil {
		return nil, fmt.Errorf("make a client of space %s: %w", target.Space, err)
	}
	return &client{api: set.CoreV1().RESTClient(), disconnect: func() { utilnet.CloseIdleConnectionsFor(h.Transport) }, name: name}, nil
}

// once makes one request, and notes what became of it. The end of ctx doesn't end the request.
func (c *client) once(ctx context.Context) {
	began := time.Now()
	err := c.request(context.WithoutCancel(ctx))
	c.note(time.Since(began), err)
	if err != nil {
		c.object = nil // whether it was written isn't known
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = began
}

func (c *client) answeredAfter(t time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered.After(t)
}

// request makes the next request. An update fails if an acknowledged write was lost, or if one was made twice: it names the version
// of the object that it replaces.
func (c *client) request(ctx context.Context) error {
	switch {
	case c.object == nil:
		return c.begin(ctx)
	case c.read:
		c.read = false
		read, err := c.get(ctx)
		if err == nil && read.ResourceVersion != c.object.ResourceVersion {
			err = fmt.Errorf("%s has the resource version %s after %s was written", c.name, read.ResourceVersion, c.object.ResourceVersion)
		}
		return err
	default:
		c.read = true
		c.value++
		next := c.object.DeepCopy()
		next.Data = map[string]string{"value": strconv.Itoa(c.value)}
		return c.write(c.to(c.api.Put()).Name(c.name).Body(next).Do(ctx))
	}
}

// begin creates the object, or reads it if it is there.
func (c *client) begin(ctx context.Context) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: c.name, Namespace: metav1.NamespaceDefault}}
	err := c.write(c.to(c.api.Post()).Body(object).Do(ctx))
	if apierrors.IsAlreadyExists(err) {
		c.object, err = c.get(ctx)
	}
	return err
}

func (c *client) get(ctx context.Context) (*corev1.ConfigMap, error) {
	object := &corev1.ConfigMap{}
	err := c.to(c.api.Get()).Name(c.name).Do(ctx).Into(object)
	return object, err
}

func (c *client) write(result rest.Result) error {
	written := &corev1.ConfigMap{}
	if err := result.Into(written); err != nil {
		return err
	}
	c.object = written
	return nil
}

// to makes a request one to ConfigMaps that isn't repeated.
func (c *client) to(r *rest.Request) *rest.Request {
	return r.MaxRetries(0).Namespace(metav1.NamespaceDefault).Resource("configmaps")
}

// remove deletes the object, and disconnects.
func (c *client) remove(ctx context.Context) error {
	defer c.disconnect()
	if err := c.to(c.api.Delete()).Name(c.name).Do(ctx).Error(); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the ConfigMap %s: %w", c.name, err)
	}
	return nil
}
