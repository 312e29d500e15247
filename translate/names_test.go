// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate"
)

// virtualName is what a virtual object is known by: in a space, and in a
// namespace unless it is cluster-scoped.
type virtualName struct{ Space, Namespace, Name string }

func (v virtualName) host(limit int) string {
	return translate.Space{Name: v.Space}.HostName(v.Namespace, v.Name, limit)
}

// valid reports whether the API servers of the host and of a space would let
// such an object be.
func (v virtualName) valid() bool {
	return len(v.Space) <= translate.MaxSpaceName && len(validation.IsDNS1123Label(v.Space)) == 0 &&
		(v.Namespace == "" || len(validation.IsDNS1123Label(v.Namespace)) == 0) &&
		len(validation.IsDNS1123Subdomain(v.Name)) == 0
}

// S3: readable where it can be, and the hash only where it must be.
func TestHostNameIsPlainWhereThatReadsBackOneWayOnly(t *testing.T) {
	long := strings.Repeat("n", 60)
	cases := map[string]struct {
		reason string
		in     virtualName
		limit  int
		want   string // exact, or with a "…" for the hash
	}{
		"Namespaced":        {"the form that the design promises", virtualName{"demo", "default", "web"}, 253, "demo--default--web"},
		"ClusterScoped":     {"no namespace, and the space ends where the host can tell", virtualName{"demo", "", "pv"}, 253, "demo.pv"},
		"NameWithSeparator": {"the name is last, so it may hold the separator", virtualName{"demo", "default", "a--b"}, 253, "demo--default--a--b"},
		"NameWithDots":      {"pods may have dots", virtualName{"demo", "default", "web.v1"}, 253, "demo--default--web.v1"},
		"SingleDashes":      {"single dashes are no separators", virtualName{"a-b", "c-d", "e-f"}, 253, "a-b--c-d--e-f"},
		"SpaceWithSeparator": {
			"a further space of a tenant may be called so", virtualName{"demo--x", "default", "web"}, 253, "demo-x-default-web---…",
		},
		"NamespaceWithSeparator":     {"else demo/x--y/z and demo/x/y--z would meet", virtualName{"demo", "x--y", "z"}, 253, "demo-x-y-z---…"},
		"ClusterScopedWithSeparator": {"the space ends at the dot", virtualName{"demo--a", "", "x--y"}, 253, "demo--a.x--y"},
		"ClusterScopedWithHash":      {"else a tenant could spell out a hash", virtualName{"demo", "", "x---y"}, 253, "demo.x-y---…"},
		"ClusterScopedTooLong":       {"led by the space all the same", virtualName{"demo", "", strings.Repeat("n", 250)}, 253, "demo." + strings.Repeat("n", 253-5-29) + "---…"},
		"TooLongForALabel":           {"services have 63 bytes", virtualName{"demo", "default", long}, 63, "demo--default--nnn"},
		"LongestThatFits": {
			"the limit is inclusive", virtualName{"demo", "default", strings.Repeat("n", 63-15)}, 63, "demo--default--" + strings.Repeat("n", 63-15),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := tc.in.host(tc.limit)
			if name == "TooLongForALabel" {
				if len(got) != tc.limit || !strings.HasPrefix(got, "demo-default-nnn") || !strings.Contains(got, "---") {
					t.Errorf("%s: HostName(%v) = %q, want a cut name with a hash of %d bytes", tc.reason, tc.in, got, tc.limit)
				}
				return
			}
			if stem, cut := strings.CutSuffix(tc.want, "…"); cut {
				if hash, ok := strings.CutPrefix(got, stem); !ok || len(hash) != 26 {
					t.Errorf("%s: HostName(%v) = %q, want %q", tc.reason, tc.in, got, tc.want)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: HostName(%v): -want +got:\n%s", tc.reason, tc.in, diff)
			}
		})
	}
}

// drawName draws an identity that is short of letters, so that separators end
// up everywhere and equal prefixes are common.
func drawName(t *rapid.T, label string) virtualName {
	part := func(label, pattern string, more ...string) string {
		return rapid.OneOf(rapid.SampledFrom(more), rapid.StringMatching(pattern)).Draw(t, label)
	}
	v := virtualName{
		Space:     part(label+" space", `[ab](-{0,3}[ab]){0,3}`, "a", "a--b", "a-b", "demo", "demo--x", "1a", strings.Repeat("s", 57)),
		Namespace: part(label+" namespace", `([ab](-{0,3}[ab]){0,3})?`, "", "default", "a--b", "kube-system", strings.Repeat("n", 63)),
		Name:      part(label+" name", `[ab]([-.]{0,3}[ab]){0,4}`, "a", "b--a", "a---b", strings.Repeat("x", 253), strings.Repeat("x", 60), strings.Repeat("x", 60)+"y"),
	}
	if !v.valid() {
		v.Name = strings.ReplaceAll(v.Name, ".", "-")
	}
	return v
}

// drawRival draws an identity made to meet the host name of v: a name that is
// read back with its parts elsewhere, or that spells out v's host name.
func drawRival(t *rapid.T, v virtualName, limit int) virtualName {
	text := rapid.SampledFrom([]string{v.host(limit), strings.Join([]string{v.Space, v.Namespace, v.Name}, "--"), v.Space + "--" + v.Name}).Draw(t, "text")
	cut := func(text, label string) (string, string) {
		var at []int
		for i := range len(text) - 1 {
			if text[i:i+2] == "--" {
				at = append(at, i)
			}
		}
		if len(at) == 0 {
			return text, ""
		}
		i := rapid.SampledFrom(at).Draw(t, label)
		return text[:i], text[i+2:]
	}
	var rival virtualName
	rival.Space, rival.Name = cut(text, "end of space")
	if rapid.Bool().Draw(t, "namespaced") {
		rival.Namespace, rival.Name = cut(rival.Name, "end of namespace")
	}
	if rival.Name == "" {
		rival.Name = v.Name
	}
	return rival
}

// S3: two tenant objects never share a host object, whatever their names are
// made of.
func TestHostNamesOfDifferentObjectsNeverMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{translate.LimitLabel, translate.LimitSubdomain}).Draw(t, "limit")
		a := drawName(t, "a")
		for _, b := range []virtualName{drawName(t, "b"), drawRival(t, a, limit), drawRival(t, a, limit)} {
			if a.valid() && b.valid() {
				checkApart(t, a, b, limit)
			}
		}
	})
}

// checkApart takes two objects of one kind, and so of one scope.
func checkApart(t interface{ Fatalf(string, ...any) }, a, b virtualName, limit int) {
	if (a.Namespace == "") == (b.Namespace == "") && a != b && a.host(limit) == b.host(limit) {
		t.Fatalf("%+v and %+v are both %q on the host", a, b, a.host(limit))
	}
}

// The pairs that a naive join, a cut without a hash, or a hash of the joined
// text would mix up (S3).
func TestHostNamesOfKnownRivalsAreApart(t *testing.T) {
	long := strings.Repeat("x", 240)
	hashed := virtualName{"demo", "a--b", "c"}.host(253)
	cases := map[string]struct {
		reason string
		a, b   virtualName
	}{
		"ShiftedNamespace":   {"the separator moves between namespace and name", virtualName{"s", "a", "b--c"}, virtualName{"s", "a--b", "c"}},
		"ShiftedSpace":       {"space names may be prefixes of each other", virtualName{"a", "b", "c"}, virtualName{"a--b", "", "c"}},
		"ShiftedSpaceDeep":   {"and so on down", virtualName{"a", "b", "c--d"}, virtualName{"a--b", "c", "d"}},
		"ClusterScoped":      {"where the space ends", virtualName{"s", "", "a.b"}, virtualName{"s--a", "", "b"}},
		"TripleDash":         {"dashes at the seam", virtualName{"s", "a", "b---c"}, virtualName{"s", "a--b", "-c"}},
		"SameCut":            {"they differ only behind the cut", virtualName{"s", "a", long + "y"}, virtualName{"s", "a", long + "z"}},
		"SpelledOutHash":     {"a tenant names an object as another's hashed form", virtualName{"demo", "a--b", "c"}, virtualName{"demo", "", strings.TrimPrefix(hashed, "demo-")}},
		"SpelledOutHashDeep": {"and in a namespace", virtualName{"demo", "a--b", "c"}, virtualName{"demo", "a-b-c", strings.TrimPrefix(hashed, "demo-a-b-c--")}},
		"DotForDash":         {"dots are not dashes", virtualName{"s", "a", "b.c"}, virtualName{"s", "a", "b-c"}},
		"CollapsedDashes":    {"the readable part collapses dashes, the hash does not", virtualName{"s", "a--b", "c"}, virtualName{"s", "a---b", "c"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, limit := range []int{translate.LimitLabel, translate.LimitSubdomain} {
				checkApart(t, tc.a, tc.b, limit)
			}
		})
	}
}

// S3: deterministic, within the kind's limit, a name that the host accepts, and
// led by the space's name.
func TestHostNameFitsTheHost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{translate.LimitLabel, translate.LimitSubdomain}).Draw(t, "limit")
		v := drawName(t, "v")
		checkFits(t, v, limit)
	})
	// One byte over, and cuts that fall on a dash or a dot.
	for name := range 70 {
		checkFits(t, virtualName{"demo", "default", strings.Repeat("n", 1+name)}, translate.LimitLabel)
		for _, separator := range []string{"-", "."} {
			long := strings.Repeat("n", 170+name) + separator + strings.Repeat("m", 253-171-name)
			checkFits(t, virtualName{"demo", "default", long}, translate.LimitSubdomain)
			checkFits(t, virtualName{"demo", "default", strings.Repeat("n", 1+name) + "-m"}, translate.LimitLabel)
		}
	}
}

func checkFits(t interface{ Fatalf(string, ...any) }, v virtualName, limit int) {
	if !v.valid() {
		return
	}
	if v.Namespace == "" {
		limit = translate.LimitSubdomain
	}
	host := v.host(limit)
	if again := v.host(limit); host != again {
		t.Fatalf("%+v is %q, then %q", v, host, again)
	}
	if len(host) > limit {
		t.Fatalf("%+v is %q on the host: %d bytes, more than %d", v, host, len(host), limit)
	}
	errs := validation.IsDNS1123Subdomain(host)
	if limit == translate.LimitLabel && !strings.Contains(v.Name, ".") {
		errs = validation.IsDNS1123Label(host)
	}
	if len(errs) > 0 {
		t.Fatalf("%+v is %q on the host: %v", v, host, errs)
	}
	if v.Namespace == "" && !strings.HasPrefix(host, v.Space+".") {
		t.Fatalf("%+v is %q on the host, which does not say whose it is", v, host)
	}
	if v.Namespace != "" && !strings.Contains(v.Space, "--") && len(v.Space) <= 30 && !strings.HasPrefix(host, v.Space+"-") {
		t.Fatalf("%+v is %q on the host, which does not begin with the space", v, host)
	}
}

// A tenant that could name a secret as another pod's token secret would read
// its service account's token.
func TestNoSecretOfATenantBearsTheNameOfATokenSecret(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := drawName(t, "pod")
		if pod.Namespace == "" || !pod.valid() {
			return
		}
		token := translate.Space{Name: pod.Space}.TokenSecretName(pod.Namespace, pod.Name)
		if errs := validation.IsDNS1123Subdomain(token); len(errs) > 0 {
			t.Fatalf("token secret of %+v is %q: %v", pod, token, errs)
		}
		spelled := virtualName{pod.Space, pod.Namespace, token}
		if _, rest, found := strings.Cut(token, "--"); found {
			spelled.Name = rest
		}
		rivals := []virtualName{
			drawName(t, "secret"), pod, spelled,
			{pod.Space, pod.Namespace, pod.Name + "--token"},
			{pod.Space, pod.Namespace + "--" + pod.Name, "token"},
		}
		for _, secret := range rivals {
			if secret.host(translate.LimitSubdomain) == token {
				t.Fatalf("secret %+v is %q, the token secret of pod %+v", secret, token, pod)
			}
		}
		other := drawName(t, "other pod")
		if other != pod && (translate.Space{Name: other.Space}).TokenSecretName(other.Namespace, other.Name) == token {
			t.Fatalf("pods %+v and %+v share the token secret %q", pod, other, token)
		}
	})
}

// S3, from whatever the fuzzer comes up with.
func FuzzHostName(f *testing.F) {
	f.Add("a", "b", "c", "a--b", "", "c")
	f.Add("s", "a", "b--c", "s", "a--b", "c")
	f.Add("s", "", "a--b", "s", "a", "b")
	f.Add("s", "a", "b.c", "s", "a", "b-c")
	f.Add("s", "a", strings.Repeat("x", 70), "s", "a", strings.Repeat("x", 71))
	f.Fuzz(func(t *testing.T, space1, namespace1, name1, space2, namespace2, name2 string) {
		a, b := virtualName{space1, namespace1, name1}, virtualName{space2, namespace2, name2}
		for _, limit := range []int{translate.LimitLabel, translate.LimitSubdomain} {
			checkFits(t, a, limit)
			if a.valid() && b.valid() {
				checkApart(t, a, b, limit)
			}
		}
	})
}
