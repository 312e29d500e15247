// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// SpacePlaceholder stands for the name of the space in the rule for a driver's volume handles.
	SpacePlaceholder = "{space}"
	// AnyHandle begins a rule without the name of the space. Then, nothing keeps spaces from each other's volumes.
	AnyHandle = "any:"
)

// VolumeRule says which volumes of a CSI driver spaces may take to the host. A tenant writes any handle into its own
// volume, also that of another tenant's volume, so a rule says to whom handles belong.
type VolumeRule struct {
	Driver string
	// Prefix is how handles begin. It contains [SpacePlaceholder] once, unless the handles belong to no space.
	Prefix string
}

// Of returns how the handles of a space begin.
func (r VolumeRule) Of(space string) string {
	return strings.ReplaceAll(r.Prefix, SpacePlaceholder, space)
}

// VolumeRules returns the rules for tenants' own volumes; none if these stay in the space.
func (s SyncOptions) VolumeRules() []VolumeRule {
	rules, _ := volumeRules(s.Value(ExportedVolumes))
	return rules
}

// These bound the expression that the host evaluates for each volume of a space.
const (
	maxVolumeRules = 20
	maxRuleBytes   = 200
)

// These are parts of the pattern of [HandlesPattern]. Their characters have no meaning in the sync options, in CEL, or
// in a path, other than the slash. After the name of a space, there is a character that no such name contains, because
// otherwise the handles of a space whose name is longer would begin in the same way.
const (
	handlePattern = `[A-Za-z0-9._:/#@~-]*`
	driverPattern = `[A-Za-z0-9][A-Za-z0-9.-]*`
	rulePattern   = driverPattern + `=(any:` + handlePattern + `|` + handlePattern + `\{space\}[./_:#@~]` + handlePattern + `)`
	// HandlesPattern is the form of the values of [Handles].
	HandlesPattern = `^` + rulePattern + `(\+` + rulePattern + `)*$`
)

var handlesForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(HandlesPattern) })

// volumeRules parses a value of [Handles].
func volumeRules(value string) (rules []VolumeRule, ok bool) {
	if !handlesForm().MatchString(value) {
		return nil, false
	}
	for entry := range strings.SplitSeq(value, "+") {
		driver, prefix, _ := strings.Cut(entry, "=")
		prefix, shared := strings.CutPrefix(prefix, AnyHandle)
		if len(driver) > 63 || len(entry) > maxRuleBytes || len(validation.IsDNS1123Subdomain(strings.ToLower(driver))) > 0 ||
			shared && strings.Contains(prefix, SpacePlaceholder) {
			return nil, false
		}
		// With two forms for one driver, the handles of one space could begin with the name of another in the other form.
		if !shared && slices.ContainsFunc(rules, func(r VolumeRule) bool { return r.Driver == driver && strings.Contains(r.Prefix, SpacePlaceholder) }) {
			return nil, false
		}
		rules = append(rules, VolumeRule{driver, prefix})
	}
	return rules, len(rules) <= maxVolumeRules
}

// handlesWithin reports whether each rule of a value allows only what a rule of the offer does.
func handlesWithin(value, offer string) bool {
	asked, _ := volumeRules(value)
	offered, _ := volumeRules(offer)
	return !slices.ContainsFunc(asked, func(r VolumeRule) bool {
		return !slices.ContainsFunc(offered, func(o VolumeRule) bool { return o.Driver == r.Driver && strings.HasPrefix(r.Prefix, o.Prefix) })
	})
}
