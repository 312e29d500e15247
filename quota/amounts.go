// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilquota "k8s.io/apiserver/pkg/quota/v1"
)

// Amounts are amounts of resources. One that is missing is zero.
type Amounts = corev1.ResourceList

// CountsClaims reports whether a resource is that of the devices of a class that resource claims can get. The host counts them once the claims
// exist there.
func CountsClaims(name corev1.ResourceName) bool {
	return strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass)
}

// total returns the sum of amounts.
func total(all ...Amounts) Amounts {
	sum := Amounts{}
	for _, one := range all {
		sum = utilquota.Add(sum, one)
	}
	return sum
}

// add adds more to a sum.
func add(sum, more Amounts) {
	for name, amount := range more {
		amount = amount.DeepCopy()
		amount.Add(sum[name])
		sum[name] = amount
	}
}

// subtract takes less from a sum, of each resource at most what there is.
func subtract(sum, less Amounts) {
	for name, amount := range less {
		left := sum[name].DeepCopy()
		if left.Sub(amount); left.Sign() < 0 {
			left = resource.Quantity{Format: left.Format}
		}
		sum[name] = left
	}
}

// Over returns how much a is more than b, without resources of which it isn't.
func Over(a, b Amounts) Amounts {
	more := Amounts{}
	for name, amount := range a {
		if amount.Cmp(b[name]) > 0 {
			left := amount.DeepCopy()
			left.Sub(b[name])
			more[name] = left
		}
	}
	return more
}

// lower returns the lower amount of each resource of a.
func lower(a, b Amounts) Amounts {
	low := Amounts{}
	for name, amount := range a {
		low[name] = amount
		if limit := b[name]; limit.Cmp(amount) < 0 {
			low[name] = limit
		}
	}
	return low
}

// Lowest returns the lower amount of each resource that a or b has.
func Lowest(a, b Amounts) Amounts {
	low := maps.Clone(a)
	for name, amount := range b {
		if other, both := a[name]; !both || amount.Cmp(other) < 0 {
			if low == nil {
				low = Amounts{}
			}
			low[name] = amount
		}
	}
	return low
}

// only returns the amounts of the resources that names has.
func only(a, names Amounts) Amounts {
	some := Amounts{}
	for name := range names {
		if amount, ok := a[name]; ok {
			some[name] = amount
		}
	}
	return some
}

// without returns the amounts of the resources that names doesn't have.
func without(a, names Amounts) Amounts {
	left := Amounts{}
	for name, amount := range a {
		if _, is := names[name]; !is {
			left[name] = amount
		}
	}
	return left
}

// half returns half of an amount, rounded down to whole units, or to thousandths for CPU.
func half(name corev1.ResourceName, amount resource.Quantity) resource.Quantity {
	if amount.Sign() <= 0 {
		return resource.Quantity{Format: amount.Format}
	}
	if name == corev1.ResourceCPU || strings.HasSuffix(string(name), "."+string(corev1.ResourceCPU)) {
		return *resource.NewMilliQuantity(amount.MilliValue()/2, amount.Format)
	}
	whole := amount.Value()
	if rounded := resource.NewQuantity(whole, amount.Format); rounded.Cmp(amount) > 0 { // Value rounds up
		whole--
	}
	return *resource.NewQuantity(whole/2, amount.Format)
}

// withoutZeros returns the amounts that aren't zero, and nil if there are none.
func withoutZeros(a Amounts) Amounts {
	if a = utilquota.RemoveZeros(a); len(a) == 0 {
		return nil
	}
	return a
}

// same reports whether two lists have the same amounts.
func same(a, b Amounts) bool {
	return utilquota.Equals(utilquota.RemoveZeros(a), utilquota.RemoveZeros(b))
}

// format returns amounts as messages have them, such as "pods=1,requests.cpu=500m".
func format(a Amounts) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		amount := a[name]
		parts = append(parts, fmt.Sprintf("%s=%s", name, amount.String()))
	}
	return strings.Join(parts, ",")
}

// zero returns nothing, in the format of an amount.
func zero(like resource.Quantity) *resource.Quantity { return &resource.Quantity{Format: like.Format} }
