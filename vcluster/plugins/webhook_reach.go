// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/admission"
	webhookinit "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/berth-dev/berth/bounds"
)

// conversionTimeout is how long a conversion webhook of a space may take, as long as an admission webhook may at most.
const conversionTimeout = 30 * time.Second

// WebhooksBy makes webhook clients use dial, whatever upstream set before, and read answers of at most maxAnswer bytes. What calls
// of conversion webhooks hold, the account has, which may be nil.
func WebhooksBy(dial utilnet.DialFunc, maxAnswer int, account *bounds.Account) webhook.AuthenticationInfoResolverWrapper {
	through := func(c *rest.Config, err error) (*rest.Config, error) {
		if err != nil {
			return nil, err
		}
		if c.Transport != nil {
			// Upstream's answer for the API server itself: its loopback, with
			// all rights.
			return nil, errors.New("clientConfig names this API server, which can't be its own webhook; name another service or URL")
		}
		c = rest.CopyConfig(c)
		c.Dial = dial
		if maxAnswer == MaxConverted { // upstream calls conversion webhooks without any time limit
			c.Timeout = conversionTimeout
		}
		// That there is one also keeps client-go from caching the transport for good: tenants make many.
		c.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
		c.Wrap(boundAnswers(maxAnswer, account))
		return c, nil
	}
	return func(next webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		return &webhook.AuthenticationInfoResolverDelegator{
			ClientConfigForFunc: func(hostPort string) (*rest.Config, error) {
				return through(next.ClientConfigFor(hostPort))
			},
			ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
				return through(next.ClientConfigForService(name, namespace, port))
			},
		}
	}
}

// WebhooksReachBy makes admission webhooks use dial. Decorators run after
// upstream's initializers, and before the first request.
func WebhooksReachBy(o *kubeoptions.AdmissionOptions, dial utilnet.DialFunc) {
	g := o.GenericAdmission
	g.Decorators = append(admission.Decorators{admission.DecoratorFunc(func(plugin admission.Interface, _ string) admission.Interface {
		if w, ok := plugin.(webhookinit.WantsAuthenticationInfoResolverWrapper); ok {
			w.SetAuthenticationInfoResolverWrapper(WebhooksBy(dial, maxAdmitted, nil))
		}
		return plugin
	})}, g.Decorators...)
}
