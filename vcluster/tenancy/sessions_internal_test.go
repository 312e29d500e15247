// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/identity"
)

// opened is a Tenancy with a session of a visitor and one of somebody else, and how often these were checked.
type opened struct {
	*Tenancy
	visitor, other     context.Context
	ofVisitor, ofOther atomic.Int32
	decide             atomic.Value // func(visits bool) (authorizer.Decision, error)
}

func open(t *testing.T) *opened {
	t.Helper()
	source := &access.Source{}
	source.Set(&access.State{Space: "solar", Tenant: "solar"})
	o := &opened{Tenancy: New(source, nil, nil, nil)}
	o.decideBy(func(bool) (authorizer.Decision, error) { return authorizer.DecisionAllow, nil })
	o.sessions.source = source
	o.sessions.authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		_, visits := access.VisitorOf(a.GetUser())
		if visits {
			o.ofVisitor.Add(1)
		} else {
			o.ofOther.Add(1)
		}
		decision, err := o.decide.Load().(func(bool) (authorizer.Decision, error))(visits)
		return decision, "", err
	})
	add := func(name string) context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		o.sessions.add(&session{r, authorizer.AttributesRecord{User: &user.DefaultInfo{Name: name}, Verb: "watch"}, cancel})
		return ctx
	}
	o.visitor, o.other = add(identity.VisitorPrefix+"lunar:bob"), add("alice")
	o.ofVisitor.Store(0)
	o.ofOther.Store(0)
	return o
}

func (o *opened) decideBy(f func(visits bool) (authorizer.Decision, error)) { o.decide.Store(f) }

func (o *opened) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go o.RunVisitors(ctx)
	go o.RunOthers(ctx)
	pause(t.Context(), time.Second)
	o.ofVisitor.Store(0)
	o.ofOther.Store(0)
}

func sharedWith(tenant string, expires time.Time) []access.Grant {
	at := metav1.NewTime(expires)
	return []access.Grant{{Source: "a", Subjects: []access.GrantSubject{{Tenant: tenant}}, Expires: &at}}
}

// L1, Z5: a tenant that writes TenantAccess objects all the time has few sessions checked, and those of visitors alone.
func TestChangesOfGrantsCheckVisitorsAtABoundedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t)
		o.run(t)
		never := time.Now().Add(time.Hour)
		o.source.SetTenantAccesses(sharedWith("lunar", never))
		synctest.Wait()
		if o.ofVisitor.Load() != 1 {
			t.Errorf("a change at rest leads to %d checks at once", o.ofVisitor.Load())
		}
		pause(t.Context(), time.Second)
		o.ofVisitor.Store(0)
		for range 1000 {
			o.source.SetTenantAccesses(sharedWith("lunar", never))
			pause(t.Context(), time.Millisecond)
		}
		if n := o.ofVisitor.Load(); n != 0 {
			t.Errorf("the same grants lead to %d checks", n)
		}
		for i := range 1000 {
			o.source.SetTenantAccesses(sharedWith([]string{"lunar", "mars"}[i%2], never))
			pause(t.Context(), time.Millisecond)
		}
		if n := o.ofVisitor.Load(); n < 2 || n > 11 {
			t.Errorf("in a second, the session of the visitor was checked %d times", n)
		}
		if n := o.ofOther.Load(); n != 0 {
			t.Errorf("the session of somebody else was checked %d times", n)
		}
	})
}

// Z5: sessions of visitors end with a grant, also while the webhook that decides on others hangs.
func TestSessionsOfVisitorsEndWithTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t)
		o.run(t)
		o.source.SetTenantAccesses(sharedWith("lunar", time.Now().Add(10*time.Second)))
		pause(t.Context(), time.Second)
		hangs := make(chan struct{})
		t.Cleanup(func() { close(hangs) })
		o.decideBy(func(visits bool) (authorizer.Decision, error) {
			if !visits {
				<-hangs
			}
			return authorizer.DecisionDeny, nil
		})
		o.source.Set(&access.State{Space: "solar", Tenant: "solar", PublishedUnknown: true})
		synctest.Wait()
		if o.visitor.Err() == nil || o.other.Err() != nil {
			t.Errorf("after a change: %v, %v", o.visitor.Err(), o.other.Err())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		o := open(t)
		o.run(t)
		o.source.SetTenantAccesses(sharedWith("lunar", time.Now().Add(10*time.Second)))
		pause(t.Context(), time.Second)
		o.decideBy(func(bool) (authorizer.Decision, error) { return authorizer.DecisionDeny, nil })
		pause(t.Context(), 8*time.Second)
		if o.visitor.Err() != nil {
			t.Error("it ended before the grant expired")
		}
		pause(t.Context(), time.Second+time.Millisecond)
		if o.visitor.Err() == nil || o.other.Err() != nil {
			t.Errorf("after the grant expired: %v, %v", o.visitor.Err(), o.other.Err())
		}
	})
}

// If the authorizer has an error when a session is checked, it is asked again until it has none.
func TestSessionsAreCheckedAgainAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t)
		o.run(t)
		o.decideBy(func(visits bool) (authorizer.Decision, error) {
			switch n := o.ofOther.Load(); {
			case visits:
				return authorizer.DecisionAllow, nil
			case n < 4:
				return authorizer.DecisionNoOpinion, errors.New("the webhook is busy")
			}
			return authorizer.DecisionNoOpinion, nil
		})
		o.source.Set(&access.State{Space: "solar", Tenant: "solar", PublishedUnknown: true})
		pause(t.Context(), 3*checkAgain-time.Millisecond)
		if n := o.ofOther.Load(); o.other.Err() != nil || n != 3 {
			t.Errorf("while there are errors, after %d checks: %v", n, o.other.Err())
		}
		pause(t.Context(), 2*time.Millisecond)
		if o.other.Err() == nil || o.visitor.Err() != nil {
			t.Errorf("it goes on after it was refused: %v; %v", o.other.Err(), o.visitor.Err())
		}
		pause(t.Context(), time.Minute)
		if n := o.ofOther.Load(); n != 4 {
			t.Errorf("it was checked %d times", n)
		}
	})
}
