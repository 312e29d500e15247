// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package syncpolicy has the command that prints the rights and the admission policies that ResourceSyncs need on the host. ResourceSyncs are
// read from the host or from files. The command uses the API of the host with the rights of the caller, and writes nothing there.
package syncpolicy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/cmd/berth/flags"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer/declaration"
)

// defaultSpaceRole is the ClusterRole of the release berth in the namespace berth-platform, as the installation guide has it.
const defaultSpaceRole = "berth-platform-berth" + isolation.SpaceRoleSuffix

// New returns the command.
func New() *cobra.Command {
	var spaceRole string
	var paths []string
	host := &flags.Host{}
	cmd := &cobra.Command{
		Use:   "sync-policy [NAME... | -f FILE...]",
		Short: "Print the rights and the admission policies that ResourceSyncs need on the host",
		Long: `Print the objects that ResourceSyncs need on the host, as YAML for 'kubectl apply -f -':
of all ResourceSyncs, or of those that you name. The command reads the ResourceSyncs and
their CustomResourceDefinitions from the host. It writes nothing there.

With -f, the command reads the ResourceSyncs from files, before they are on the host. Files
have documents of YAML or JSON, which are ResourceSyncs or CustomResourceDefinitions. If no
file has the definition of a ResourceSync, the command reads it from the host. The output has
the order of the documents. It is the same as that of a ResourceSync on the host.

Berth's account may not write rights and policies. So an admin of the host applies them, and
applies them again when the ResourceSync or the CustomResourceDefinition changes. Until then,
the condition Ready of the ResourceSync is False, with the reason PolicyMissing. 'berth up'
applies the policies itself.

For direction ToHost, the command prints
  - a ValidatingAdmissionPolicy and its binding. The accounts of spaces may write only copies
    of the space's objects, with the fields that the ResourceSync lists.
  - a ClusterRole that lets the account of each space write the resource in the space's
    namespace.
For both directions, it prints
  - a ClusterRole that lets Berth's account list and watch the resource, and one that lets
    the accounts of dedicated spaces do that: their processes watch the host by themselves.

Labels of the ClusterRoles add their rules to those of the ClusterRoles of the Helm chart.
If the chart isn't the release "berth" in the namespace "berth-platform", set --space-role.

If a ResourceSync or a document is invalid, the command prints the objects of the others, and
exits with code 1.`,
		Example: `  berth sync-policy | kubectl apply -f -
  berth sync-policy certificates.cert-manager.io | kubectl diff -f -
  berth sync-policy --space-role=tools-berth-space
  berth sync-policy -f syncs.yaml -f cert-manager.crds.yaml
  berth sync-policy certificates.cert-manager.io > policy.yaml    # delete the ResourceSync, and then these`,
		ValidArgsFunction: host.Names("resourcesyncs", 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !strings.HasSuffix(spaceRole, isolation.SpaceRoleSuffix) {
				return fmt.Errorf("--space-role=%s: the name of the ClusterRole ends in %s; use that of --space-role of 'berth serve'", spaceRole, isolation.SpaceRoleSuffix)
			}
			if len(paths) == 0 {
				return host.Run(func(cmd *cobra.Command, args []string, host *hostapi.Client) error {
					syncs, err := read(cmd, host, args)
					if len(syncs) == 0 && err == nil {
						fmt.Fprintln(cmd.ErrOrStderr(), "No ResourceSyncs found")
					}
					return errors.Join(err, printAll(cmd, syncs, definitionsOn(host), spaceRole))
				})(cmd, args)
			}
			if len(args) > 0 {
				return fmt.Errorf("%q: a name is of the host, and -f reads a file; use one of them", args[0])
			}
			files, err := readFiles(cmd, paths)
			return errors.Join(err, printAll(cmd, files.syncs, files.definitions(cmd, host), spaceRole))
		},
	}
	host.AddTo(cmd)
	cmd.Flags().StringArrayVarP(&paths, "filename", "f", nil, "file with ResourceSyncs, and their CustomResourceDefinitions; - is standard input; repeat the flag for several")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	cmd.Flags().StringVar(&spaceRole, "space-role", defaultSpaceRole, "ClusterRole of spaces' accounts, as of 'berth serve': NAMESPACE-RELEASE-space of the Helm chart")
	_ = cmd.RegisterFlagCompletionFunc("space-role", cobra.NoFileCompletions)
	return cmd
}

// read returns the ResourceSyncs that are named, or all. A name that doesn't exist doesn't keep the others.
func read(cmd *cobra.Command, host client.Reader, names []string) (syncs []v1alpha1.ResourceSync, err error) {
	if len(names) == 0 {
		var all v1alpha1.ResourceSyncList
		err := host.List(cmd.Context(), &all)
		return all.Items, err
	}
	var errs []error
	for _, name := range names {
		var one v1alpha1.ResourceSync
		if err := host.Get(cmd.Context(), client.ObjectKey{Name: name}, &one); err != nil {
			errs = append(errs, err)
			continue
		}
		syncs = append(syncs, one)
	}
	return syncs, errors.Join(errs...)
}

// definitions returns the CustomResourceDefinition of a name.
type definitions func(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error)

// definitionsOn returns those of the host.
func definitionsOn(host client.Reader) definitions {
	return func(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
		crd, err := definitionOn(ctx, host, name)
		if apierrors.IsNotFound(err) {
			return nil, errors.New("the host has no CustomResourceDefinition of this name; install it, or delete the ResourceSync")
		}
		return crd, err
	}
}

func definitionOn(ctx context.Context, host client.Reader, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	return crd, host.Get(ctx, client.ObjectKey{Name: name}, crd)
}

// printAll prints what ResourceSyncs need on the host. One that is invalid doesn't keep the others.
func printAll(cmd *cobra.Command, syncs []v1alpha1.ResourceSync, known definitions, spaceRole string) error {
	var errs []error
	for i := range syncs {
		objects, err := objectsOf(cmd.Context(), &syncs[i], known, spaceRole)
		if err == nil {
			err = printTo(cmd.OutOrStdout(), objects)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// objectsOf returns what a ResourceSync needs on the host. Policies are before the rights that they restrict.
func objectsOf(ctx context.Context, of *v1alpha1.ResourceSync, known definitions, spaceRole string) ([]client.Object, error) {
	crd, err := known(ctx, of.Name)
	if err != nil {
		return nil, fmt.Errorf("resourcesync %s: %w", of.Name, err)
	}
	d, errs := declaration.Compile(of, crd)
	if len(errs) > 0 {
		var all []error
		for _, err := range errs {
			all = append(all, fmt.Errorf("resourcesync %s: %w", of.Name, err))
		}
		return nil, errors.Join(all...)
	}
	return slices.Concat(isolation.SyncPolicy(d), isolation.SyncRoles(d, spaceRole)), nil
}

// printTo prints objects as documents of YAML, without what the host fills in.
func printTo(out io.Writer, objects []client.Object) error {
	for _, object := range objects {
		gvk, err := apiutil.GVKForObject(object, scheme.Scheme)
		if err != nil {
			return err
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return err
		}
		fields["apiVersion"], fields["kind"] = gvk.GroupVersion().String(), gvk.Kind
		delete(fields, "status")
		if meta, ok := fields["metadata"].(map[string]any); ok {
			delete(meta, "creationTimestamp")
		}
		text, err := yaml.Marshal(fields)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "---\n%s", text)
	}
	return nil
}
