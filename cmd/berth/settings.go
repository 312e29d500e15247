// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/pod-security-admission/api"

	"github.com/berth-dev/berth/translate"
)

// settingsOptions are the flags that say what spaces' objects may be on the host.
type settingsOptions struct {
	podSecurity, reservedLabels, ingressDomains []string
	showNodeAddresses                           bool
}

func (o *settingsOptions) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&o.podSecurity, "pod-security", nil,
		"what spaces' pods must be, as NAME=VALUE for all or SPACE:NAME=VALUE for one, which counts more: level=baseline|restricted, "+
			"seccomp=RuntimeDefault|Unconfined (of pods that set none), runtime-class=CLASS, user-namespaces=on|off, net-raw=on|off, host-profiles=on|off")
	cmd.Flags().StringSliceVar(&o.reservedLabels, "reserved-labels", nil,
		"domains, prefixes that end in a dot, or keys of pods' labels that controllers of the host act on: on the host, tenants' labels get other keys")
	cmd.Flags().BoolVar(&o.showNodeAddresses, "show-node-addresses", false,
		"pass on the addresses of nodes in the statuses of services, ingresses and gateways")
	cmd.Flags().StringSliceVar(&o.ingressDomains, "ingress-domains", nil,
		"domains that the host names of ingresses, gateways and routes must be in, as DOMAIN for all spaces or SPACE:DOMAIN for one, which then has these alone; any if none is given")
	for _, flag := range []string{"pod-security", "reserved-labels", "ingress-domains"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// settings checks the flags, and returns what they say of a space.
func (o *settingsOptions) settings() (of func(space string) translate.Settings, err error) {
	all := translate.Settings{ReservedLabels: o.reservedLabels, ShowNodeAddresses: o.showNodeAddresses}
	for _, entry := range o.reservedLabels {
		domain := strings.TrimSuffix(entry, ".")
		if problems := validation.IsQualifiedName(domain); len(problems) > 0 {
			return nil, fmt.Errorf("--reserved-labels: %q is neither a domain, nor a prefix that ends in a dot, nor a key: %s", entry, problems[0])
		}
	}
	domains := map[string][]string{}
	for _, value := range o.ingressDomains {
		space, domain, err := ofSpace("--ingress-domains", value)
		if err != nil {
			return nil, err
		}
		if problems := validation.IsDNS1123Subdomain(domain); len(problems) > 0 {
			return nil, fmt.Errorf("--ingress-domains: %q is no domain: %s", domain, problems[0])
		}
		domains[space] = append(domains[space], domain)
	}
	type change struct {
		space string
		apply func(*translate.PodSecurity)
	}
	var changes []change
	for _, value := range o.podSecurity {
		space, setting, err := ofSpace("--pod-security", value)
		if err != nil {
			return nil, err
		}
		apply, err := podSecuritySetting(setting)
		if err != nil {
			return nil, err
		}
		changes = append(changes, change{space, apply})
	}
	return func(space string) translate.Settings {
		out := all
		out.Domains = domains[""]
		if own := domains[space]; len(own) > 0 {
			out.Domains = own
		}
		for _, whose := range []string{"", space} { // what is said of the one counts more
			for _, c := range changes {
				if c.space == whose {
					c.apply(&out.PodSecurity)
				}
			}
		}
		return out
	}, nil
}

func podSecuritySetting(setting string) (func(*translate.PodSecurity), error) {
	name, value, _ := strings.Cut(setting, "=")
	oneOf := func(values ...string) error {
		if !slices.Contains(values, value) {
			return fmt.Errorf("--pod-security: %s=%q: want one of %s", name, value, strings.Join(values, ", "))
		}
		return nil
	}
	switch name {
	case "level":
		return func(p *translate.PodSecurity) { p.Level = api.Level(value) }, oneOf("baseline", "restricted")
	case "seccomp":
		return func(p *translate.PodSecurity) { p.Seccomp = corev1.SeccompProfileType(value) },
			oneOf(string(corev1.SeccompProfileTypeRuntimeDefault), string(corev1.SeccompProfileTypeUnconfined))
	case "runtime-class":
		if problems := validation.IsDNS1123Subdomain(value); len(problems) > 0 {
			return nil, fmt.Errorf("--pod-security: runtime-class=%q: %s", value, problems[0])
		}
		return func(p *translate.PodSecurity) { p.RuntimeClass = value }, nil
	case "user-namespaces":
		return func(p *translate.PodSecurity) { p.UserNamespaces = value == "on" }, oneOf("on", "off")
	case "net-raw":
		return func(p *translate.PodSecurity) { p.DropNetRaw = value == "off" }, oneOf("on", "off")
	case "host-profiles":
		return func(p *translate.PodSecurity) { p.HostProfiles = value == "on" }, oneOf("on", "off")
	default:
		return nil, fmt.Errorf("--pod-security: there is no setting %q; see --help", name)
	}
}

// args are the flags again, for another process.
func (o *settingsOptions) args() (args []string) {
	for _, s := range o.podSecurity {
		args = append(args, "--pod-security", s)
	}
	for _, l := range o.reservedLabels {
		args = append(args, "--reserved-labels", l)
	}
	for _, d := range o.ingressDomains {
		args = append(args, "--ingress-domains", d)
	}
	if o.showNodeAddresses {
		args = append(args, "--show-node-addresses")
	}
	return args
}
