// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-dev/berth/syncer/resources"
)

// X1: the schema knows each kind that is synced, and the values of its sync option, and the
// name of each limit, as the code has them.
func TestTheChartTakesFromTheCodeWhatIsSynced(t *testing.T) {
	const file = "berth/values.schema.json"
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var kindsOf []string
	for _, k := range resources.Table() {
		kindsOf = append(kindsOf, fmt.Sprintf("        %q: %s", k.Name, optionSchema(t, k.Values)))
	}
	want := "    \"sync\": {\n      \"type\": \"object\",\n      \"additionalProperties\": false,\n      \"properties\": {\n" +
		strings.Join(kindsOf, ",\n") + "\n      }\n    },\n"
	text := regexp.MustCompile(`(?ms)^    "sync": \{\n.*?^    \},\n`).ReplaceAllLiteralString(string(have), want)
	if os.Getenv(envUpdate) != "" {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(text, string(have)); diff != "" || !strings.Contains(text, want) {
		t.Errorf("%s is stale; run: go generate ./charts\n%s", file, diff)
	}
}

// strictly has a schema of Kubernetes refuse fields that there are not, and drops what JSON Schema does not know.
func strictly(schema map[string]any) {
	for key := range schema {
		if strings.HasPrefix(key, "x-kubernetes-") || key == "default" || key == "format" || key == "description" {
			delete(schema, key)
		}
	}
	properties, object := schema["properties"].(map[string]any)
	for _, property := range properties {
		strictly(property.(map[string]any))
	}
	if object {
		schema["additionalProperties"] = false
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if inner, ok := schema[key].(map[string]any); ok {
			strictly(inner)
		}
	}
}

// optionSchema is the schema of a sync option that takes these values, a number or a
// string. Berth itself looks more closely at selectors and names.
func optionSchema(t *testing.T, values []string) string {
	t.Helper()
	var words []string
	var others []map[string]any
	pattern := func(p string) { others = append(others, map[string]any{"type": "string", "pattern": p}) }
	for _, v := range values {
		switch v {
		case resources.Selector:
			pattern("=")
		case resources.Bound:
			pattern("^-?[0-9]+$")
			others = append(others, map[string]any{"type": "integer", "minimum": math.MinInt32, "maximum": 1_000_000_000})
		case resources.PreemptingBound:
			pattern("^" + resources.Preempting + "-?[0-9]+$")
		case resources.Provisioners:
			pattern(`^[^+,=\s]*[./][^+,=\s]*(\+[^+,=\s]*[./][^+,=\s]*)*$`)
		case resources.Handles:
			pattern(resources.HandlesPattern)
		default:
			words = append(words, v)
		}
	}
	var schema any = map[string]any{"enum": words}
	if len(others) > 0 {
		schema = map[string]any{"anyOf": append([]map[string]any{{"enum": words}}, others...)}
	}
	text, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// X1: what Berth takes for a sync option, the schema takes, too.
func TestTheSchemaTakesWhatSwitchesTake(t *testing.T) {
	rounds := [][]string{{"sync.storageclasses=tier in (a\\,b)\\,x=y", "sync.ownpriorityclasses=-5", "sync.ownstorageclasses=ebs.csi.aws.com+example.com/nfs", "sync.ownpersistentvolumes=disks.example={space}/+ebs.csi.aws.com=any:vol-", "sync.nodes=all", "sync.daemonsets=translated"}}
	for _, k := range resources.Table() {
		for i, v := range k.Values {
			if _, err := resources.Parse([]string{k.Name + "=" + v}); err != nil {
				continue // it stands for others
			}
			if i+1 == len(rounds) {
				rounds = append(rounds, nil)
			}
			rounds[i+1] = append(rounds[i+1], "sync."+k.Name+"="+v)
		}
	}
	for _, values := range rounds {
		render(t, append(values, "spaces[0].name=a")...)
	}
}

// X1: a value that means nothing is refused before anything is made, and the
// message names it.
func TestBadValuesAreRefusedByName(t *testing.T) {
	for name, test := range map[string]struct {
		set    []string
		says   string
		reason string
	}{
		"unknown":        {[]string{"replica=3"}, "replica", "a slip of the finger"},
		"no placement":   {[]string{"operator.enabled=false", "replicas=2"}, "set operator.enabled", "no space would be placed"},
		"nor by metric":  {[]string{"operator.enabled=false", "autoscaling.enabled=true"}, "set operator.enabled", "no space would be placed"},
		"a small range":  {[]string{"autoscaling.enabled=true", "autoscaling.minReplicas=3", "autoscaling.maxReplicas=2"}, "autoscaling.maxReplicas", "the host would refuse it"},
		"no pods at all": {[]string{"replicas=0"}, "/replicas", "nobody would serve the spaces"},
		"a shard's port": {[]string{"metrics.port=7445"}, "metrics.port: 7445 is the shards' port", "one port, two listeners"},
		"no replica":     {[]string{"operator.replicas=0"}, "/operator/replicas", "nobody would create tenants' spaces"},
		"no operator":    {[]string{"operator.enabled=false", "tenants.acme.private=true"}, "operator.enabled", "nobody would apply them"},
		"a reserved one": {[]string{"tenants.system.private=true"}, "'system'", "it is the host's"},
		"its namespace":  {[]string{"tenants.spaces.private=true"}, "tenants.spaces", "tenants' pods beside Berth's"},
		"no such owner":  {[]string{"tenants.acme.owners[0].kind=Team", "tenants.acme.owners[0].name=a"}, "/tenants/acme", "User, Group, ServiceAccount, or HostServiceAccount"},
		"no such scope":  {[]string{"configuration.ownerScope.teams={a}"}, "teams", "a slip of the finger"},
		"a short digest": {[]string{"image.digest=sha256:123"}, "/image/digest", "no image has it"},
		"a tenant's":     {[]string{"spaces.a.tenantName=acme"}, "/spaces/a", "the operator creates spaces of tenants"},
		"in the map":     {[]string{"spaces.Team.isolation=Shared"}, "'Team'", "no DNS label"},
		"unknown within": {[]string{"image.tags=x"}, "tags", "a slip of the finger"},
		"twice":          {[]string{"spaces[0].name=a", "spaces[1].name=a", "spaces[1].spec.isolation=Dedicated"}, "spaces[1].name: a is listed twice", "which of the two?"},
		"its own place":  {[]string{"spaces[0].name=spaces", "nameOverride=x"}, "spaces[0].name: the space's namespace would be the release's", "tenants' pods beside Berth's"},
		"upper case":     {[]string{"spaces[0].name=Team"}, "/spaces/0/name", "no DNS label"},
		"reserved":       {[]string{"spaces[0].name=system"}, "/spaces/0/name", "it is the host's"},
		"too long":       {[]string{"spaces[0].name=" + strings.Repeat("a", 58)}, "/spaces/0/name", "its namespace's name would be too long"},
		"no name":        {[]string{"spaces[0].spec.isolation=Shared"}, "/spaces/0", "a space has a name"},
		"isolation":      {[]string{"spaces[0].name=a", "spaces[0].spec.isolation=None"}, "/spaces/0/spec/isolation", "Shared or Dedicated"},
		"plain":          {[]string{"advertise=http://berth"}, "/advertise", "there is TLS only"},
		"with a path":    {[]string{"advertise=https://berth/x"}, "/advertise", "spaces are told by the path"},
		"no duration":    {[]string{"idleAfter=soon"}, "/idleAfter", "want 15m"},
		"a port":         {[]string{"service.port=70000"}, "/service/port", "out of range"},
		"no node's port": {[]string{"service.nodePort=30443"}, "service.nodePort", "a ClusterIP has none"},
		"none and some":  {[]string{"pods.dnsUpstreams[0]=none", "pods.dnsUpstreams[1]=192.0.2.53"}, "/pods/dnsUpstreams", "none is none"},
		"no resolver":    {[]string{"pods.dnsUpstreams[0]=nowhere"}, "/pods/dnsUpstreams", "want an address"},
		"shared volume":  {[]string{"storage.accessMode=ReadWriteMany"}, "/storage/accessMode", "two pods must never hold it"},
		"unbounded":      {[]string{"spaces[0].name=a", "sync.ownpriorityclasses=5", "admissionPolicy.enabled=false"}, "sync.ownpriorityclasses", "nothing would hold the bound"},
		"no range":       {[]string{"spaceDefaults.network.closedRanges={}"}, "/spaceDefaults/network/closedRanges", "want a prefix"},
		"all dedicated":  {[]string{"spaceDefaults.isolation=Dedicated"}, "/spaceDefaults", "set this field in each space instead"},
		"no such field":  {[]string{"spaces[0].name=a", "spaces[0].spec.node.selector.pool=a"}, "node", "a slip of the finger"},
		"unseen nodes":   {[]string{"sync.daemonsets=translated", "sync.nodes=standins"}, "nodes: all", "there would be no nodes to run on"},
		"unseen allowed": {[]string{"allowedSync.daemonsets=translated", "sync.nodes=standins"}, "nodes: all", "no space could turn it on"},
		"defaults' sync": {[]string{"spaceDefaults.sync[0].resource=nodes", "spaceDefaults.sync[0].value=all"}, "/spaceDefaults", "there is one value for it: sync"},
		"no such value":  {[]string{"allowedSync.ingresses=5"}, "/ingresses", "it is on or off"},
		"no gateways":    {[]string{"sync.httproutes=on"}, "gateways: on", "nothing to attach to; Berth would not start"},
		"too often":      {[]string{"snapshots.every=59.9s"}, "snapshots.every: 59.9s: want 1m", "Berth would not start"},
		"no such kind":   {[]string{"sync.podz=all"}, "podz", "a slip of the finger"},
		"no such option": {[]string{"sync.ingresses=5"}, "/sync/ingresses", "it is on or off"},
		"any volume":     {[]string{"sync.ownpersistentvolumes=disks.example"}, "/sync/ownpersistentvolumes", "handles belong to somebody"},
		"a word for all": {[]string{"sync.ownstorageclasses=on"}, "/sync/ownstorageclasses", "each provisioner is named"},
		"a high bound":   {[]string{"sync.ownpriorityclasses=2000000000"}, "/sync/ownpriorityclasses", "the system's priorities are higher"},
		"no quantity":    {[]string{"spaceDefaults.limits.store-bytes=100K"}, "/spaceDefaults/limits/store-bytes", "Berth would not start"},
		"all rights":     {[]string{"clients.systemGroups={crew,system:masters}"}, "/clients/systemGroups/1", "Berth would be cluster-admin"},
		"by kubeadm":     {[]string{"clients.systemGroups={kubeadm:cluster-admins}"}, "/clients/systemGroups/0", "Berth would be cluster-admin"},
		"a component":    {[]string{"clients.systemUsers={system:kube-controller-manager}"}, "/clients/systemUsers/0", "it has the tokens of all accounts"},
		"no name of one": {[]string{"clients.systemUsers[0]="}, "/clients/systemUsers/0", "a rule without names is about all users"},
		"no label":       {[]string{"platformName=Team A"}, "/platformName", "namespaces are labelled with it, and a policy compares it"},
		"a quote":        {[]string{"platformName=a' || true || '"}, "/platformName", "it would end the policy's string"},
		"no platform":    {[]string{"platformName="}, "/platformName", "every namespace without a label would be its own"},
		"a space's own":  {[]string{"spaces[0].name=a", "spaces[0].spec.platformName=other"}, "platformName", "another platform serves that space"},
		"a short grace":  {[]string{"terminationGracePeriodSeconds=5"}, "/terminationGracePeriodSeconds", "less than a stop takes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"template", "berth", "berth", "--namespace", "berth-spaces"}
			for _, s := range test.set {
				args = append(args, "--set", s)
			}
			if _, stderr, err := helm(t, args...); err == nil || !strings.Contains(stderr, test.says) {
				t.Errorf("%s: %v says %q (%v), want it to name %s", test.reason, test.set, stderr, err, test.says)
			}
		})
	}
}

// L1: limits are quantities as Berth reads them.
func TestLimitsMayHaveAnyUnitThatBerthReads(t *testing.T) {
	for _, limit := range []string{"100k", "1500", "64Ki", "10M", "2Gi"} {
		render(t, "spaces[0].name=a", "spaceDefaults.limits.store-bytes="+limit)
		if _, err := resource.ParseQuantity(limit); err != nil {
			t.Errorf("%s: %v", limit, err)
		}
	}
}

// X1: values.yaml shows each value that the schema knows, with a word about it.
func TestAllValuesAreShown(t *testing.T) {
	var schema struct {
		Properties map[string]struct {
			Properties map[string]json.RawMessage
		}
	}
	var documented map[string]any
	values, err := os.ReadFile("berth/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("berth/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(values, &documented); err != nil {
		t.Fatal(err)
	}
	for name, property := range schema.Properties {
		value, there := documented[name]
		if !there && name != "global" {
			t.Errorf("values.yaml does not show %s", name)
		}
		for part := range property.Properties {
			if within, ok := value.(map[string]any); ok && len(within) > 0 && within[part] == nil {
				t.Errorf("values.yaml does not show %s.%s", name, part)
			}
		}
	}
}

// X1: what the flags offer, the values do, too: no names outside of the spaces, and
// a port of the nodes that kubeconfigs can lead to from the first.
func TestValuesReachTheService(t *testing.T) {
	objects := render(t, "spaces[0].name=a", "pods.dnsUpstreams[0]=none", "service.type=NodePort", "service.nodePort=30443")
	service := find(t, objects, func(s *corev1.Service) bool { return s.Name == "berth" })
	if port := service.Spec.Ports[0].NodePort; port != 30443 {
		t.Errorf("the nodes' port is %d", port)
	}
	if args := find[*appsv1.StatefulSet](t, objects, nil).Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--dns-upstream=none") {
		t.Errorf("Berth asks others for names: %v", args)
	}
}
