// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
)

// Options say how to connect to a space.
type Options struct {
	Wanted
	// Host has the Secret, and the pods of Berth. If it is nil, HostError says why there is none.
	Host      *hostapi.Client
	HostError error
	// Local returns a kubeconfig from a data directory of this machine. It is asked first if LocalFirst is set, and otherwise if
	// the host has none. It may be nil.
	Local      func() ([]byte, error)
	LocalFirst bool
	// Notes is where is printed what the user may want to know.
	Notes io.Writer
}

// Load returns the kubeconfig of the space as Berth wrote it, and the namespace of its Secret, which is empty for one of this
// machine.
func Load(ctx context.Context, o Options) (config *Config, namespace string, err error) {
	name := ContextName(o.Space, o.Owner)
	if o.LocalFirst && o.Local != nil {
		data, err := o.Local()
		if err != nil {
			return nil, "", err
		}
		config, err := ParseConfig(data, name)
		return config, "", err
	}
	err = o.HostError
	if o.Host != nil {
		secret, failed := Find(ctx, o.Host, o.Wanted)
		if failed == nil {
			data, err := Kubeconfig(secret)
			if err != nil {
				return nil, "", err
			}
			config, err := ParseConfig(data, name)
			return config, secret.Namespace, err
		}
		err = explainMissing(ctx, o, failed)
	}
	if o.Local == nil {
		return nil, "", err
	}
	data, failed := o.Local()
	if failed != nil {
		return nil, "", err // it is about the host, which was asked first
	}
	fmt.Fprintf(o.Notes, "Using the space %s of the Berth on this machine: %v\n", o.Space, err)
	config, err = ParseConfig(data, name)
	return config, "", err
}

// explainMissing says that there is no such space, if that is why the Secret is missing.
func explainMissing(ctx context.Context, o Options, err error) error {
	if _, missing := errors.AsType[*NotFoundError](err); !missing {
		return err
	}
	gone := o.Host.Get(ctx, client.ObjectKey{Name: o.Space}, &v1alpha1.Space{})
	if apierrors.IsNotFound(gone) {
		return fmt.Errorf("%w; see 'berth space get' for those that the host has", gone)
	}
	return err
}

// Connection leads to a space until it is closed.
type Connection struct {
	// Config reaches the space from here. Berth's is the kubeconfig as Berth wrote it.
	Config, Berth *Config
	forwarding    *Forwarding
}

// Open connects to a space. It forwards a port if the address in the kubeconfig can't be reached.
func Open(ctx context.Context, o Options) (*Connection, error) {
	config, namespace, err := Load(ctx, o)
	if err != nil {
		return nil, err
	}
	c := &Connection{Config: config, Berth: config}
	unreachable := reach(ctx, config)
	if unreachable == nil {
		return c, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if namespace == "" {
		return nil, fmt.Errorf("%w; if Berth doesn't run on this machine, start it with 'berth up'", unreachable)
	}
	endpoint, err := FindEndpoint(ctx, o.Host, config, namespace)
	if err != nil {
		return nil, errors.Join(unreachable, err)
	}
	if c.forwarding, err = Forward(o.Host.Config, endpoint); err != nil {
		return nil, errors.Join(unreachable, err)
	}
	fmt.Fprintf(o.Notes, "%s can't be reached from here; forwarding a port to pod %s by the host's API\n", config.Server(), endpoint.Pod)
	if c.Config, err = config.through(c.forwarding.Port); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Forwards reports whether the connection ends with this process, because it leads through a port of this machine.
func (c *Connection) Forwards() bool { return c.forwarding != nil }

// Wait returns when the context ends, or with an error when the forwarding does.
func (c *Connection) Wait(ctx context.Context) error {
	if c.forwarding == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-c.forwarding.Done():
		return errors.New("the pod closed the connection; run the command again to connect to another one")
	}
}

// Close ends the forwarding, if there is one.
func (c *Connection) Close() {
	if c.forwarding != nil {
		c.forwarding.Close()
	}
}
