// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions_test

import (
	"strings"
	"testing"
)

// L3: CEL counts what a call costs after it. A call of replace in 40 bytes made a text of 10^12 bytes, and lists.range a list of any
// length: either ends the process for all spaces.
func TestHostileCallsThatMakeLargeValuesAreRefused(t *testing.T) {
	text := strings.Repeat("a", 20_000)
	for _, expression := range []string{
		"s.replace('a', s) == ''",
		"s.replace('', s) == ''",
		"s.replace('a', s, 10000) == ''",
		"[1, 2, 3].map(i, s).map(t, t.replace('a', t)) == []",
		"lists.range(5000).map(i, '').join(s) == ''",
		"lists.range(5000000) == []",
		"[lists.range(300000), lists.range(300000)].flatten() == []",
		"lists.range(50000).map(i, '%f').join().format(lists.range(50000).map(i, 1.7e308)) == ''",
		"'" + strings.Repeat("%.999999f", 50) + "'.format([" + strings.Repeat("1.0,", 49) + "1.0]) == ''",
	} {
		if _, _, err := evaluate(t, expression, text, text); err == nil || !strings.Contains(err.Error(), "limit expression-bytes") {
			t.Errorf("%.60s: %v", expression, err)
		}
	}
}

// L3: each pair of elements, or of characters, is compared before the cost is known, and for upstream long elements cost no more than
// short ones.
func TestHostileCallsThatCompareEachWithEachAreRefused(t *testing.T) {
	text := strings.Repeat("a", 60_000)
	long := make([]string, 600)
	for i := range long {
		long[i] = text
	}
	for _, expression := range []string{
		"s.indexOf(s.substring(30000) + 'b') == 0",
		"s.lastIndexOf('b' + s.substring(30000)) == 0",
		"p.distinct() == []",
		"sets.contains(p, p)",
		"sets.intersects(p, p)",
		"sets.equivalent(p, p)",
	} {
		if _, _, err := evaluate(t, expression, text, long); err == nil || !strings.Contains(err.Error(), "limit match-steps") {
			t.Errorf("%.60s: %v", expression, err)
		}
	}
}

// L3: a quantity of 60 characters takes minutes to compare, in which nothing interrupts it.
func TestHostileQuantitiesAreRefused(t *testing.T) {
	for _, expression := range []string{
		"quantity('1e100000000').compareTo(quantity('1500m')) > 0", "quantity('1E-300000000').isInteger()", "isQuantity('1e-' + s)",
	} {
		if _, _, err := evaluate(t, expression, "99999999999999999999", "a"); err == nil || !strings.Contains(err.Error(), "exponent") {
			t.Errorf("%s: %v", expression, err)
		}
	}
	for _, expression := range []string{"isQuantity('1e3')", "quantity('1E').isInteger()", "quantity('1500m').isInteger() || isQuantity('2Ei')", "!isQuantity('hello')"} {
		if _, _, err := evaluate(t, expression, "a", "a"); err != nil {
			t.Errorf("%s: %v", expression, err)
		}
	}
}

// L3: optMap copies what it is called on, so that twenty of them in a chain took minutes and gigabytes to compile.
func TestHostileChainsAreRefused(t *testing.T) {
	const most = 3
	for _, call := range []string{".optMap(a, a + a)", ".optFlatMap(a, optional.of(a + a))"} {
		for n, refused := range map[int]bool{most: false, most + 1: true, 20: true} {
			_, issues := environmentOf(t).Compile("optional.of(s)" + strings.Repeat(call, n) + ".hasValue()")
			if err := issues.Err(); refused && (err == nil || !strings.Contains(err.Error(), "follows more than")) || !refused && err != nil {
				t.Errorf("%d times %s: %v", n, call, err)
			}
		}
	}
}

// L3: calls that are usual are not refused.
func TestUsualCallsAreFarFromTheLimits(t *testing.T) {
	text := strings.Repeat("a line\n", 10_000)
	list := make([]string, 400)
	for i := range list {
		list[i] = strings.Repeat("x", 60)
	}
	for _, expression := range []string{
		"s.replace('line', 'longer line').size() > 0", "p.join(', ').size() > 0", "lists.range(10000).size() > 0", "s.indexOf('end') == -1",
		"s.lastIndexOf('end of the text, which is not in it') == -1", "p.distinct().size() == 1", "sets.contains(p, p)", "sets.equivalent(p, p)",
		"'%s, %.3f'.format([s, 1.0]).size() > 0", "s.split('\\n').map(l, l + '!').size() > 0", "p.map(x, {'name': [x], 'all': [x, x]}).size() > 0", "p + p == p + p", "p == p && [p] != [s]",
		"'release 1.20261122 of %s'.format([s]).size() > 0",
		// Upstream takes minutes for this one.
		"[[s.size()]]" + strings.Repeat(".map(a, a + a)", 16) + "[0].size() == 65536",
		"[['a']]" + strings.Repeat(".map(a, a + a)", 13) + "[0].all(x, x == 'a')",
	} {
		if _, cost, err := evaluate(t, expression, text, list); err != nil || cost > 500_000 {
			t.Errorf("%.60s costs %d, %v", expression, cost, err)
		}
	}
}

// L3: values that share parts are small in memory, and exponentially large to what reads them: a comparison, or a patch that is
// written as JSON. It can't be interrupted.
func TestHostileValuesThatGrowExponentiallyCostWhatTheyHold(t *testing.T) {
	for name, expression := range map[string]string{
		"a list of lists":           "[p]" + strings.Repeat(".map(a, [a, a])", 24) + " == []",
		"a list of maps":            "[p]" + strings.Repeat(".map(a, {'a': a, 'b': a})", 24) + " == []",
		"a map of maps":             "[p]" + strings.Repeat(".map(a, {'a': 1, 'b': 1}.transformMap(k, v, a))", 24) + " == []",
		"a list that is doubled":    "[[p]]" + strings.Repeat(".map(a, a + a)", 24) + " == []",
		"a list of unknown type":    "[dyn([p])]" + strings.Repeat(".map(a, a + a)", 24) + " == []",
		"a list of long lists":      "[[p]]" + strings.Repeat(".map(a, a + a)", 12) + ".map(a, a.map(b, a.map(c, a))) == []",
		"a text that is doubled":    "['a']" + strings.Repeat(".map(a, a + a)", 28) + " == []",
		"a text of unknown type":    "[p]" + strings.Repeat(".map(a, a + a)", 28) + " == []",
		"a large text in many maps": "lists.range(10000).map(i, {'a': s}) == []",
	} {
		if _, cost, err := evaluate(t, expression, strings.Repeat("s", 1_000_000), "a"); err == nil || !strings.Contains(err.Error(), "cost limit exceeded") {
			t.Errorf("%s costs %d, %v", name, cost, err)
		}
	}
}

// L3: a policy keeps the values of its variables until its evaluation ends. For upstream, what a call makes cost nothing.
func TestHostileCallsCostWhatTheyMake(t *testing.T) {
	text := strings.Repeat("a", 2_800)
	for name, c := range map[string]struct {
		expression string
		least      uint64
	}{
		"replace": {"s.replace('a', s).size() > 0", 784_000},
		"split":   {"s.split('').size() > 0", 2_800},
		"format":  {"'%s%s%s%s'.format([s, s, s, s]).size() > 0", 1_120},
	} {
		if _, cost, err := evaluate(t, c.expression, text, text); err != nil || cost < c.least {
			t.Errorf("%s costs %d, %v, want at least %d", name, cost, err, c.least)
		}
	}
}

// Usual values cost what they do upstream.
func TestUsualValuesAreAsUpstreamHasThem(t *testing.T) {
	for expression, want := range map[string]uint64{
		"[1, 2, 3].map(i, i + 1) == [2, 3, 4]":         44,
		"s + 'b' == 'ab'":                              3,
		"{'a': s} == {'a': 'a'}":                       32,
		"s in ['a', 'b'] && s in ['a', s]":             15,
		"s.replace('a', 'bc') == 'bc'":                 3,
		"sets.contains([s, 'b'], ['a'])":               14,
		"['a', 'a'].distinct() == ['a'] && [s] == [s]": 43,
		"lists.range(3) == [0, 1, 2]":                  15,
		"'%s: %d, %.1f'.format([s, 2, 1.5]) == 'a: 2'": 14,
		"['a', s].join(',') == 'a,a'":                  13,
		"'abcab'.indexOf('b') + 'aba'.lastIndexOf(s)":  2,
		"[p].map(x, x + x) == ['aa']":                  28,
	} {
		if _, cost, err := evaluate(t, expression, "a", "a"); err != nil || cost != want {
			t.Errorf("%s costs %d, want %d, %v", expression, cost, want, err)
		}
	}
}
