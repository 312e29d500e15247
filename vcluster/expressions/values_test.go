// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions_test

import (
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/testrace"
)

// L3: CEL counts what a call costs after it. A call of replace in 40 bytes made a text of 10^12 bytes, and lists.range a list of any
// length: either ends the process for all spaces.
func TestHostileCallsThatMakeLargeValuesAreRefused(t *testing.T) {
	testrace.SkipAlone(t)
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

// bigList is a list of so many numbers, with a last one.
func bigList(n, last int) []any {
	list := make([]any, n, n+1)
	for i := range list {
		list[i] = i
	}
	return append(list, last)
}

// repeated is a list that holds two values many times.
func repeated(n int, values ...any) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = values[i%len(values)]
	}
	return list
}

// L3: one operator in compared 512 lists of 200,000 elements, in 3.8 s, and with long texts it took minutes. Nothing interrupts a call.
func TestHostileCallsThatCompareWhatIsHeldManyTimesAreRefused(t *testing.T) {
	testrace.SkipAlone(t)
	text := strings.Repeat("a", 1<<20)
	lists := []any{bigList(200_000, -1), repeated(512, bigList(200_000, -2)), repeated(512, bigList(200_000, -3))}
	texts := repeated(5000, text+"b", text+"c")
	for expression, p := range map[string]any{
		"p[0] in p[1]": lists, "p[1] == p[2]": lists, "p[1] != p[2]": lists, "p[1].indexOf(p[0]) == 1": lists, "p[1].lastIndexOf(p[0]) == 1": lists,
		"sets.contains(p[1], [p[0]])": lists, "sets.intersects(p[1], [p[0]])": lists,
		"s in p": texts, "p.min() == s": texts, "p.max() == s": texts, "p.isSorted()": texts, "p.sort() == []": texts,
	} {
		if _, _, err := evaluate(t, expression, text+"d", p); err == nil || !strings.Contains(err.Error(), "limit match-steps") {
			t.Errorf("%s: %v", expression, err)
		}
	}
	// A check reads what it refuses, and an expression may go on.
	if _, cost, err := evaluate(t, "lists.range(100).all(i, p[0] in p[1] || true)", "", lists); err == nil {
		t.Errorf("100 checks that refuse calls cost %d", cost)
	}
}

// L3: calls that cost one, or next to nothing, took milliseconds, and an expression could make them for the minute that a request has.
func TestHostileCallsCostWhatTheyHandle(t *testing.T) {
	testrace.SkipAlone(t)
	list, text := bigList(100_000, -1), strings.Repeat("a", 1<<20)
	const lists, texts = 25_000, 1 << 20 / 64
	for _, c := range []struct {
		expression, s string
		p             any
		least         uint64
	}{
		{"p[0] in p[1]", "", []any{list, repeated(2, bigList(100_000, -2), list)}, 2 * lists},
		{"p.sort().size() > 0", "", list, 10 * lists},
		{"p.sortBy(i, i).size() > 0", "", list, 10 * lists},
		{"[s + 'a', s + 'b'].sort().size() > 0", text, nil, 2 * texts},
		{"p.min() == -1", "", list, lists},
		{"p.max() != ''", "", repeated(100_000, "short", "texts"), lists},
		{"p.isSorted() || true", "", repeated(100_000, "short", "texts"), lists},
		{"sets.contains([p[0]], [p[1]])", "", []any{list, bigList(100_000, -2)}, lists},
		{"sets.equivalent([p[0]], [p[1]])", "", []any{list, bigList(100_000, -2)}, lists},
		{"sets.intersects([p[0]], [p[1]])", "", []any{list, bigList(100_000, -2)}, lists},
		{"[p].indexOf([1]) == -1", "", list, 1},
		{"[p[0]].indexOf(p[1]) == -1", "", []any{list, bigList(100_000, -2)}, lists},
		{"[p].distinct().size() == 1", "", list, lists / 2},
		{"[p].flatten().size() > 1", "", list, lists},
		{"''.format(p) == ''", "", list, lists},
		{"p.join() == ''", "", make([]string, 100_000), lists},
		{"[p.map(x, optional.of(x))].all(u, optional.unwrap(u).size() > 0)", "", bigList(1000, 1), 13_200},
		{"s.size() > 0", text, nil, texts},
		{"p.size() > 0", "", text, texts},
		{"s.charAt(0) == 'a'", text, nil, texts},
		{"s.indexOf(s.substring(100) + 'b') == -1 && s.indexOf(s.substring(9000)) == 0", strings.Repeat("a", 17_000), nil, 290_000},
		{"int(s) == 0 || true", text, nil, texts}, {"uint(p) == 0u || true", "", text, texts}, {"double(p) == 0.0 || true", "", text, texts},
		{"timestamp(s) == timestamp(0) || true", text, nil, texts}, {"duration(s) == duration('1s') || true", text, nil, texts},
		{"bool(s) || true", text, nil, texts}, {"format.named(s).hasValue() || true", text, nil, texts},
		{"bytes(p).size() > 0", "", text, texts},
		{"p[0] <= p[1]", "", []any{text + "a", text + "b"}, texts}, {"p[0] > p[1]", "", []any{text + "a", text + "b"}, texts},
		{"s in p", text, map[string]any{"a": 1}, texts},
		{"[url('https://' + s)].all(u, u.getHost() != '' && u.getHostname() != '')", text, nil, 290_000},
		{"[url('https://a/' + s)].all(u, u == url('https://a/' + s))", text, nil, 450_000},
		{"[semver('1.0.0-' + s)].all(v, v.compareTo(v) == 0)", text, nil, 200_000 + texts},
	} {
		result, cost, err := evaluate(t, c.expression, c.s, c.p)
		if err != nil && strings.Contains(err.Error(), "cost limit exceeded") {
			continue
		}
		if err != nil || cost < c.least {
			t.Errorf("%s costs %d, want at least %d: %v, %v", c.expression, cost, c.least, result, err)
		}
	}
}

// L3: a quantity of 60 characters takes minutes to compare, in which nothing interrupts it.
func TestHostileQuantitiesAreRefused(t *testing.T) {
	for _, expression := range []string{
		"quantity('1e100000000').compareTo(quantity('1500m')) > 0", "quantity('1E-300000000').isInteger()", "isQuantity('1e-' + s)",
	} {
		if _, _, err := evaluate(t, expression, "99999999999999999999", "a"); err == nil || !strings.Contains(err.Error(), "limit quantity-digits") {
			t.Errorf("%s: %v", expression, err)
		}
	}
	// Digits take the square of their number.
	if _, _, err := evaluate(t, "quantity(s).isInteger()", strings.Repeat("9", 100_000), "a"); err == nil || !strings.Contains(err.Error(), "limit quantity-digits") {
		t.Errorf("a quantity of 100,000 digits: %v", err)
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
	testrace.SkipAlone(t)
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
	testrace.SkipAlone(t)
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
		// As an API server without Berth counts them, measured.
		"p in [p] && s in {'a': 1} && p.size() == 1":                       18,
		"[3, 1, 2].sort() == [1, 2, 3]":                                    30,
		"dyn([3, 1]).sort().min() == 1 && s < 'b' && p <= s":               9,
		"[s].sortBy(x, x)[0] <= p":                                         44,
		"s.size() + int('1') + s.indexOf(p) + [s].indexOf('b')":            18,
		"string(1) + s.charAt(0) + string(bytes('a')) + string(dyn(b'a'))": 5,
		"[[1], [2]].flatten() == [1, 2] && [[1]].flatten(1) == [1]":        27,
		"quantity('1').compareTo(quantity('2')) < 0 && !isQuantity('a')":   6,
		"url('https://a/b').getHost() == 'a' && semver('1.2.3-a').isLessThan(semver('2.0.0')) && url('https://a') != url('https://b')": 10,
		"ip('::1') == ip('::1') && cidr('::1/128') == cidr('::1/128') && duration('1s') < duration('2s') && bool('true')":              7,
		"sets.contains([1, 2], [1]) && sets.equivalent([1, 2], [2, 1]) && sets.intersects([1], [1])":                                   14,
		"[1, 2].sum() == 3 && [1.0, 2.0].max() > 1.0 && ['a', s].isSorted() && ['abcdefghijk'].min() != ''":                            18,
		"optional.unwrap([optional.of(1)]) == [1] && format.named('dns1123Label').hasValue()":                                          15,
	} {
		if _, cost, err := evaluate(t, expression, "a", "a"); err != nil || cost != want {
			t.Errorf("%s costs %d, want %d, %v", expression, cost, want, err)
		}
	}
}
