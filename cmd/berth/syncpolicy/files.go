// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncpolicy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/cmd/berth/flags"
	"github.com/berth-dev/berth/operator/manifest"
)

// standardInput is the path that means standard input, as for kubectl.
const standardInput = "-"

// files has the objects of files.
type files struct {
	syncs  []v1alpha1.ResourceSync // in the order of the documents
	crds   map[string]*apiextensionsv1.CustomResourceDefinition
	origin map[string]string // of each object: its file and document
}

// readFiles returns the objects of files that are valid. A document that is invalid doesn't keep the others.
func readFiles(cmd *cobra.Command, paths []string) (*files, error) {
	all := &files{crds: map[string]*apiextensionsv1.CustomResourceDefinition{}, origin: map[string]string{}}
	schema, err := newSchema()
	if err != nil {
		return all, err
	}
	var errs []error
	for i, path := range paths {
		at := "-f=" + path
		text, err := contentOf(cmd, path, paths[:i])
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", at, err))
			continue
		}
		documents, err := manifest.Documents(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", at, err))
		}
		for _, d := range documents {
			at := fmt.Sprintf("%s: document %d", at, d.Number)
			if err := all.add(cmd.Context(), schema, d.JSON, at); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", at, err))
			}
		}
	}
	if len(all.syncs) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("-f: the files have no ResourceSync; add a file that has one"))
	}
	return all, errors.Join(errs...)
}

// contentOf returns the content of a file.
func contentOf(cmd *cobra.Command, path string, before []string) ([]byte, error) {
	if path != standardInput {
		return os.ReadFile(path)
	}
	for _, other := range before {
		if other == standardInput {
			return nil, errors.New("standard input can be read once; use -f - once")
		}
	}
	return io.ReadAll(cmd.InOrStdin())
}

// add adds the object of a document.
func (f *files) add(ctx context.Context, schema *schema, document []byte, at string) error {
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(document, &object); err != nil {
		return err
	}
	switch object.GroupVersionKind() {
	case v1alpha1.GroupVersion.WithKind("ResourceSync"):
		if object.Name == "" {
			return errors.New("resourcesync: metadata.name must be set; it is the name of the CustomResourceDefinition, such as certificates.cert-manager.io")
		}
		if err := f.note("resourcesync "+object.Name, at); err != nil {
			return err
		}
		of, err := schema.read(ctx, document, object.Name)
		if err != nil {
			return err
		}
		f.syncs = append(f.syncs, *of)
	case apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"):
		if err := f.note("customresourcedefinition "+object.Name, at); err != nil {
			return err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := json.Unmarshal(document, crd); err != nil {
			return fmt.Errorf("customresourcedefinition %s: %w", object.Name, err)
		}
		if want := crd.Spec.Names.Plural + "." + crd.Spec.Group; crd.Name != want {
			return fmt.Errorf("customresourcedefinition %s: metadata.name: has to be spec.names.plural and spec.group, which is %s", crd.Name, want)
		}
		f.crds[crd.Name] = crd
	default:
		return fmt.Errorf("kind %q of apiVersion %q: the command reads ResourceSyncs of %s and CustomResourceDefinitions of %s; move the object to another file",
			object.Kind, object.APIVersion, v1alpha1.GroupVersion, apiextensionsv1.SchemeGroupVersion)
	}
	return nil
}

// note refuses an object that another document has, too: which of them is on the host in the end depends on who applies them.
func (f *files) note(object, at string) error {
	if before, ok := f.origin[object]; ok {
		return fmt.Errorf("%s: it is also in %s; remove one of them", object, before)
	}
	f.origin[object] = at
	return nil
}

// definitions returns those of the files, and others from the host. Only if there are others, a host is needed.
func (f *files) definitions(cmd *cobra.Command, host *flags.Host) definitions {
	open := sync.OnceValues(func() (*hostapi.Client, error) { return host.Open(cmd) })
	return func(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
		if crd := f.crds[name]; crd != nil {
			return crd, nil
		}
		client, err := open()
		if err != nil {
			return nil, withoutFile(err)
		}
		crd, err := definitionOn(ctx, client, name)
		if apierrors.IsNotFound(err) {
			return nil, errors.New("neither a file nor the host has a CustomResourceDefinition of this name; add a file that has it with -f, or correct metadata.name")
		}
		if err != nil {
			return nil, withoutFile(hostapi.Explain(err, client.Config.Host))
		}
		return crd, nil
	}
}

func withoutFile(err error) error {
	return fmt.Errorf("read the CustomResourceDefinition, which no file has, from the host: %w; or add a file that has it with -f", err)
}
