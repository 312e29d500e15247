// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/vcluster/pki"
)

// renewInterval is how often certificates are looked at. They are renewed half a
// day before they end, so it matters little.
const renewInterval = time.Hour

// renewPoll is how often it is found out whether that has passed on the machine's clock: timers stand still while a
// machine is suspended, and certificates go on to end.
const renewPoll = time.Minute

// startRenewing keeps the kubeconfigs in the data directory good, also those of
// spaces that sleep, for as long as the process runs.
func (p *Platform) startRenewing(context.Context) error {
	run, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	authority := &publisher{spaces: p.shard, port: p.ca.PEM, published: p.ca.PEM(), logger: p.logger}
	go func() {
		defer close(done)
		select { // it writes the same files
		case <-p.starts.done:
		case <-run.Done():
			return
		}
		ticker := time.NewTicker(renewPoll)
		defer ticker.Stop()
		for renewed := (time.Time{}); ; {
			if now := time.Now().Round(0); now.Sub(renewed) >= renewInterval {
				renewed = now
				p.renewKubeconfigs(run)
				authority.publish(run)
			}
			select {
			case <-ticker.C:
			case <-run.Done():
				return
			}
		}
	}()
	p.onStop(func(context.Context) { stop(); <-done })
	return nil
}

// publisher has all spaces publish the port's authority anew, in each namespace's
// kube-root-ca.crt, when another one is to be trusted too: once in some years.
// They do so when they wake, and nobody would wake one whose pods can't reach it
// because they don't trust the port.
type publisher struct {
	spaces interface {
		Names() []string
		Sleep(ctx context.Context, space string) error
		WarmUp(space string)
	}
	port      func() []byte
	published []byte
	left      []string // that have still to publish it
	logger    klog.Logger
}

// sleepTimeout bounds the wait for one space to have nothing under way.
const sleepTimeout = time.Minute

func (p *publisher) publish(ctx context.Context) {
	if current := p.port(); !bytes.Equal(current, p.published) {
		p.published, p.left = current, p.spaces.Names()
	}
	p.left = slices.DeleteFunc(p.left, func(name string) (published bool) {
		sleep, cancel := context.WithTimeout(ctx, sleepTimeout)
		defer cancel()
		err := p.spaces.Sleep(sleep, name)
		if errors.Is(err, shard.ErrUnknown) {
			return true // it is gone
		}
		if err != nil && ctx.Err() == nil {
			p.logger.Error(err, "publish the port's authority; will try again", "space", name)
		}
		p.spaces.WarmUp(name)
		return err == nil
	})
}

func (p *Platform) renewKubeconfigs(ctx context.Context) {
	names, err := Kubeconfigs(p.config.DataDir)
	if err != nil {
		p.logger.Error(err, "renew kubeconfigs")
	}
	for _, name := range names {
		end, err := p.changes.begin(name, "getting a new certificate")
		if err != nil {
			continue // it may be being deleted; the next time is early enough for all others
		}
		if config, err := renewKubeconfig(p.config.DataDir, name, "", p.ca); err != nil {
			p.logger.Error(err, "renew kubeconfig", "name", name)
		} else {
			p.publishKubeconfig(ctx, name, config)
		}
		end()
	}
	if err := p.renewHostFiles(); err != nil {
		p.logger.Error(err, "renew what dedicated spaces' processes reach the host by")
	}
}

// renewKubeconfig has the kubeconfig of a space, or of the host, bear a
// certificate that is good for a while and trust the port's authority, and
// returns it. It is to lead to server, or to where it did if that is empty. The
// space need not be awake.
func renewKubeconfig(dataDir, name, server string, port *pki.CA) ([]byte, error) {
	path := KubeconfigPath(dataDir, name)
	old, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig of %s: %w", name, err)
	}
	clients, err := openClientCA(dataDir, name)
	if errors.Is(err, errNoKeys) {
		return old, nil
	}
	if err != nil {
		return nil, fmt.Errorf("renew kubeconfig of %s: %w", name, err)
	}
	renewed, err := pki.RenewKubeconfig(old, server, clients, port.PEM())
	if err != nil {
		return nil, fmt.Errorf("renew kubeconfig %s: %w", path, err)
	}
	if !bytes.Equal(old, renewed) {
		if err := pki.WriteFile(path, renewed); err != nil {
			return nil, fmt.Errorf("write kubeconfig of %s: %w", name, err)
		}
	}
	return renewed, nil
}

// Kubeconfig returns the kubeconfig of a space, or of the host, in a data directory, with a certificate that is good for
// half of [DefaultKubeconfigTTL] at least. A platform may run on the directory or not.
func Kubeconfig(dataDir, name string) ([]byte, error) {
	if !pki.Exists(portKeys(dataDir)) {
		return os.ReadFile(KubeconfigPath(dataDir, name))
	}
	port, err := pki.OpenCA(portKeys(dataDir), portCA)
	if err != nil {
		return nil, err
	}
	return renewKubeconfig(dataDir, name, "", port)
}
