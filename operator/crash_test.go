// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator"
)

const (
	// envCrashPoints, if it is set, has the operator killed at each write, and not only at each usualStride-th.
	envCrashPoints = "BERTH_CRASH_POINTS"
	usualStride    = 8
)

var errKilled = errors.New("the operator was killed")

// killer ends an operator at one of its writes, and lets it write nothing after that, as kill -9 would.
type killer struct {
	before bool // the write does not reach the host
	kill   context.CancelFunc
	wrote  func(what string)

	mu   sync.Mutex
	left int // writes until the end
	dead bool
}

func (k *killer) write(what string, do func() error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead {
		return errKilled
	}
	k.left--
	if k.left > 0 {
		k.wrote(what)
		return do()
	}
	k.dead = true
	if !k.before {
		k.wrote(what)
		_ = do()
	}
	k.kill()
	return errKilled
}

func (k *killer) client(config *rest.Config, options client.Options) (client.Client, error) {
	c, err := client.NewWithWatch(config, options)
	if err != nil {
		return nil, err
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return k.write("create "+o.GetName(), func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return k.write("delete "+o.GetName(), func() error { return c.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return k.write("patch "+o.GetName(), func() error { return c.Patch(ctx, o, patch, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return k.write("apply", func() error { return c.Apply(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return k.write("patch "+name+" of "+o.GetName(), func() error { return c.SubResource(name).Patch(ctx, o, patch, opts...) })
		},
		SubResourceApply: func(ctx context.Context, c client.Client, name string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			return k.write("apply "+name, func() error { return c.SubResource(name).Apply(ctx, o, opts...) })
		},
	}), nil
}

// killed runs operators, one after the other, each of which is killed at its nth write, until one is not. Then it runs on.
type killed struct {
	*env
	writes []string
	kills  int
	stop   func()
}

func (e *env) runKilled(n int, before bool, most int) *killed {
	k := &killed{env: e}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			one, end := context.WithCancel(ctx)
			killer := &killer{before: before, kill: end, left: n, wrote: func(what string) { k.writes = append(k.writes, what) }}
			config := operator.Config{Host: e.host.Config(), ShardNamespace: shardNamespace, NewClient: killer.client}
			if k.kills >= most {
				config.NewClient = nil
			}
			if err := operator.New(config).Run(one); err != nil {
				e.Errorf("the operator ended: %v", err)
			}
			end()
			k.kills++
		}
	}()
	k.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	e.Cleanup(k.stop)
	return k
}

// snapshot returns the tree of a life, without what differs in each.
func (e *env) snapshot(ctx context.Context) (lines []string, err error) {
	tenants, spaces := &v1alpha1.TenantList{}, &v1alpha1.SpaceList{}
	if err := errors.Join(e.List(ctx, tenants), e.List(ctx, spaces)); err != nil {
		return nil, err
	}
	for _, one := range tenants.Items {
		if strings.HasPrefix(one.Name, "life") {
			for i := range one.Status.Conditions {
				one.Status.Conditions[i].LastTransitionTime = metav1.Time{}
			}
			lines = append(lines, fmt.Sprintf("%s %v %v %v %s", one.Name, one.Labels, one.Finalizers, one.DeletionTimestamp, mustJSON(one.Spec, one.Status)))
		}
	}
	for _, one := range spaces.Items {
		if strings.HasPrefix(one.Name, "life") {
			lines = append(lines, fmt.Sprintf("%s %v %v %s", one.Name, one.Labels, one.DeletionTimestamp, mustJSON(one.Spec)))
		}
	}
	return lines, nil
}

// live lets a tree of tenants be created, changed, and deleted, and checks that it is as it should be in between, and that nothing
// is left. Without a state that it should have, it returns what it is once it is settled.
func (e *env) live(want []string) (settled []string) {
	e.Helper()
	e.create(tenant("life", ownedBy("anna"), func(s *v1alpha1.TenantSpec) { s.Space.DeletionPolicy = v1alpha1.DeletionRetain }),
		tenant("life-b", below("life"), private), tenant("life-c", below("life-b"), ownedBy("carl")),
		&v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "life-more"}, Spec: v1alpha1.SpaceSpec{TenantName: "life-c"}})
	e.spaceIs("life-c", "is owned", func(s *v1alpha1.Space) bool { return len(names(s)) == 1 })
	change(e, tenant("life"), func(one *v1alpha1.Tenant) { one.Spec.Owners[0].Name = "alma" })
	change(e, tenant("life-b"), func(one *v1alpha1.Tenant) {
		one.Spec.Private, one.Spec.Cordoned = ptr.To(false), ptr.To(true)
	})
	if want == nil {
		e.spaceIs("life-more", "has all owners", func(s *v1alpha1.Space) bool { return len(names(s)) == 2 })
		e.tenantIs("life", "has counted", func(one *v1alpha1.Tenant) bool { return ptr.Deref(one.Status.Subtree.Spaces, 0) == 4 })
		e.tenantIs("life-b", "is cordoned", func(one *v1alpha1.Tenant) bool { return one.Status.State == v1alpha1.TenantCordoned })
		e.tenantIs("life-c", "has owners", func(one *v1alpha1.Tenant) bool { return len(one.Status.Owners) == 2 })
	}
	e.eventually("the tree is as without a crash", func(ctx context.Context) (err error) {
		if settled, err = e.snapshot(ctx); err == nil && want != nil && !cmp.Equal(want, settled) {
			err = fmt.Errorf("-want +got:\n%s", cmp.Diff(want, settled))
		}
		return err
	})
	change(e, tenant("life"), func(one *v1alpha1.Tenant) { one.Spec.DeletionPropagation = v1alpha1.DeleteSubtree })
	if err := e.Delete(e.Context(), tenant("life")); err != nil {
		e.Fatal(err)
	}
	e.eventually("nothing is left", func(ctx context.Context) error {
		left, err := e.snapshot(ctx)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left: %s", strings.Join(left, "\n"))
		}
		return err
	})
	return settled
}

// T6, T7, H7: an operator that is killed at any of its writes, and started again, leaves the same tenants and spaces as one that is
// not, and nothing of deleted ones.
func TestAnOperatorThatIsKilledAtAnyWriteResumes(t *testing.T) {
	e := newEnv(t)
	stop := e.run()
	e.reason(v1alpha1.SystemTenant, v1alpha1.ReasonActive)
	e.reason(v1alpha1.DefaultTenant, v1alpha1.ReasonSpacesNotReady)
	want := e.live(nil)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	const always = 1 << 20
	for name, before := range map[string]bool{"each write is the last": false, "each second write is lost": true} {
		t.Run(name, func(t *testing.T) {
			e := &env{TB: t, WithWatch: e.WithWatch, host: e.host}
			n := 1
			if before {
				n = 2
			}
			k := e.runKilled(n, before, always)
			e.live(want)
			k.stop()
			t.Logf("killed %d times, with %d writes", k.kills, len(k.writes))
		})
	}
	stride := usualStride
	if os.Getenv(envCrashPoints) != "" { // make crash
		stride = 1
	}
	for n := 1; ; n += stride {
		var kills int
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("killed at write %d, lost %v", n, before), func(t *testing.T) {
				e := &env{TB: t, WithWatch: e.WithWatch, host: e.host}
				k := e.runKilled(n, before, 1)
				e.live(want)
				k.stop()
				kills = k.kills
				if kills < 2 {
					t.Logf("there were %d writes: %v", len(k.writes), k.writes)
				}
			})
		}
		if kills < 2 || t.Failed() {
			break
		}
	}
}
