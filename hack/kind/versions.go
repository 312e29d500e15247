// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// Versions of Kubernetes, etcd, CoreDNS, metrics-server and kind itself are those of go.mod, of older Kubernetes and its
// etcd those of kubernetes-*/go.mod. The rest is here.
const (
	// pauseVersion is the one that kind's configuration of containerd names.
	pauseVersion = "3.10"
	// agentImage and metricsImage are the names that manifests/ give.
	agentImage   = "localhost/kind-agent:local"
	metricsImage = "localhost/metrics-server:local"
)

// nodePackages are what a node holds of Debian, in the release of the machine that builds it.
var nodePackages = []string{
	"systemd", "systemd-sysv", "dbus",
	"containerd", "runc", "containernetworking-plugins",
	"conntrack", "ethtool", "iproute2", "iptables", "kmod", "nftables", "socat",
	"bash", "ca-certificates", "curl", "e2fsprogs", "jq", "libseccomp2", "mount", "procps", "util-linux",
}

// What this program needs of Debian itself, by a command that each brings: to run an engine, and to build a node.
var (
	enginePackages  = map[string][]string{"docker": {"docker.io"}, "dockerd": {"docker.io"}, "iptables": {"iptables"}}
	builderPackages = map[string][]string{
		"debootstrap": {"debootstrap"}, "gcc": {"gcc", "libc6-dev"}, "ldd": {"libc-bin"}, "strip": {"binutils"},
	}
)

// components are the packages that a node's programs are built of, by their names.
var components = map[string]string{
	"agent":                   "./agent",
	"coredns":                 "./coredns",
	"etcd":                    "go.etcd.io/etcd/server/v3",
	"kube-apiserver":          "k8s.io/kubernetes/cmd/kube-apiserver",
	"kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
	"kube-proxy":              "k8s.io/kubernetes/cmd/kube-proxy",
	"kube-scheduler":          "k8s.io/kubernetes/cmd/kube-scheduler",
	"kubeadm":                 "k8s.io/kubernetes/cmd/kubeadm",
	"kubectl":                 "k8s.io/kubernetes/cmd/kubectl",
	"kubelet":                 "k8s.io/kubernetes/cmd/kubelet",
	"metrics-server":          "sigs.k8s.io/metrics-server/cmd/metrics-server",
}
