// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/platform/datadir"
)

// Host is the host cluster that the flags of a command choose, as those of kubectl do.
type Host struct {
	// DataDir is the data directory of a Berth on this machine.
	DataDir string

	config     *genericclioptions.ConfigFlags
	kubeconfig string
	set        *pflag.FlagSet
}

// usages are those of kubectl's flags that the commands have.
func usages() map[string]string {
	return map[string]string{
		"kubeconfig":      "kubeconfig of the host cluster (default: $KUBECONFIG, ~/.kube/config, or that of the host of 'berth up')",
		"context":         "context of the kubeconfig",
		"cluster":         "cluster of the kubeconfig",
		"user":            "user of the kubeconfig",
		"as":              "user to impersonate on the host",
		"as-group":        "group to impersonate on the host; repeat the flag for several",
		"request-timeout": "how long a single request to the host may take, such as 10s; 0 means no limit",
	}
}

// AddTo declares the flags for a command and those below it.
func (h *Host) AddTo(cmd *cobra.Command) {
	empty := func() *string { return ptr.To("") }
	h.config = &genericclioptions.ConfigFlags{
		KubeConfig: empty(), Context: empty(), ClusterName: empty(), AuthInfoName: empty(), Impersonate: empty(), ImpersonateGroup: &[]string{}, Timeout: ptr.To("0"),
	}
	h.set = cmd.PersistentFlags()
	h.config.AddFlags(h.set)
	for name, usage := range usages() {
		h.set.Lookup(name).Usage = usage
	}
	h.set.StringVar(&h.kubeconfig, "host-kubeconfig", "", "the same as --kubeconfig, for commands in which that is another file")
	addDataDir(h.set, &h.DataDir, "data directory of a 'berth up' on this machine; $BERTH_DATA_DIR sets another default")
	_ = cmd.MarkPersistentFlagDirname(dataDirFlag)
	_ = cmd.RegisterFlagCompletionFunc("context", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return h.contexts(), cobra.ShellCompDirectiveNoFileComp
	})
	for _, name := range []string{"cluster", "user", "as", "as-group", "request-timeout"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
}

func (h *Host) contexts() (names []string) {
	raw, err := h.config.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil
	}
	for name := range raw.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Elsewhere reports whether flags say that the host of another machine is meant. The environment alone doesn't say that.
func (h *Host) Elsewhere() bool { return h.chosen() && !h.embedded() }

// Here reports whether the Berth on this machine is meant: flags name its data directory, or its host is the one to use.
func (h *Host) Here() bool { return !h.Elsewhere() && (h.set.Changed(dataDirFlag) || h.embedded()) }

func (h *Host) chosen() bool {
	return slices.ContainsFunc([]string{"kubeconfig", "host-kubeconfig", "context", "cluster", "user"}, h.set.Changed)
}

// embedded reports whether the host to use is that of a Berth on this machine.
func (h *Host) embedded() bool {
	file, err := h.file()
	if err != nil {
		return false
	}
	used, err := os.Stat(cmp.Or(file, os.Getenv(clientcmd.RecommendedConfigPathEnvVar)))
	if err != nil {
		return false
	}
	own, err := os.Stat(datadir.Kubeconfig(h.DataDir, datadir.HostName))
	return err == nil && os.SameFile(used, own)
}

// Open returns a client of the host. It sends no request.
func (h *Host) Open(cmd *cobra.Command) (*hostapi.Client, error) {
	config, err := h.restConfig()
	if err != nil {
		return nil, hostapi.Explain(err, "")
	}
	config.WarningHandler = rest.NewWarningWriter(cmd.ErrOrStderr(), rest.WarningWriterOptions{Deduplicate: true})
	return hostapi.New(config)
}

// Run returns the function of a command that uses a host. It adds to errors of the host what the caller can do about them.
func (h *Host) Run(run func(cmd *cobra.Command, args []string, host *hostapi.Client) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		host, err := h.Open(cmd)
		if err != nil {
			return err
		}
		return hostapi.Explain(run(cmd, args, host), host.Config.Host)
	}
}

func (h *Host) restConfig() (*rest.Config, error) {
	file, err := h.file()
	if err != nil {
		return nil, err
	}
	*h.config.KubeConfig = file
	config, err := h.config.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	// Without a kubeconfig, kubectl takes a port of this machine that nobody uses anymore.
	if raw, err := h.config.ToRawKubeConfigLoader().RawConfig(); err == nil && clientcmdapi.IsConfigEmpty(&raw) && config.Host == clientcmd.ClusterDefaults.Server {
		return nil, clientcmd.ErrEmptyConfig
	}
	return config, nil
}

// file returns the kubeconfig of the host, or nothing to use the one that kubectl would use.
func (h *Host) file() (string, error) {
	named := *h.config.KubeConfig
	if h.kubeconfig != "" {
		if named != "" && named != h.kubeconfig {
			return "", fmt.Errorf("--host-kubeconfig=%s: --kubeconfig=%s is another file; set one of them", h.kubeconfig, named)
		}
		named = h.kubeconfig
	}
	if named != "" {
		if _, err := os.Stat(named); err != nil {
			return "", fmt.Errorf("--kubeconfig: %w", err)
		}
		return named, nil
	}
	embedded := datadir.Kubeconfig(h.DataDir, datadir.HostName)
	if _, err := os.Stat(embedded); err == nil && !h.chosen() && (h.set.Changed(dataDirFlag) || !usual()) {
		return embedded, nil
	}
	return "", nil
}

// usual reports whether there is a kubeconfig that kubectl would use, or whether $KUBECONFIG says that there is.
func usual() bool {
	if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" {
		return true
	}
	_, err := os.Stat(clientcmd.RecommendedHomeFile)
	return err == nil
}
