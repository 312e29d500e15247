// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package side

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/translate"
)

// copiers is how many copies are made at once.
const copiers = 8

// MultiplyArgs say which spaces get how many copies in all. The copy i has the name of CopyName(i).
type MultiplyArgs struct {
	Templates []string
	Copies    int
	// SpacesMax is how many spaces are awake at once, at most, from the next start on.
	SpacesMax int
}

// CopyName is the name of a copy. It comes before the names of the templates.
func CopyName(i int) string { return fmt.Sprintf("copy-%05d", i) }

// storeIDFile has the ID of a store, which is the one file of a space that no other space may have.
const storeIDFile = "store.id"

// multiply makes copies of spaces while the shard is stopped, and leaves it stopped. A copy has the store and the keys of its template,
// and an ID and an object of its own, with the same status. It has no host objects: a space that wakes gets these.
func (p *spacePlatform) multiply(ctx context.Context, args MultiplyArgs) error {
	p.cancel()
	if err := <-p.ended; err != nil {
		return err
	}
	p.ended <- nil // for restart
	p.config.SpacesMax = args.SpacesMax
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(copiers)
	for i := range args.Copies {
		group.Go(func() error { return p.copy(ctx, args.Templates[i%len(args.Templates)], CopyName(i)) })
	}
	return group.Wait()
}

func (p *spacePlatform) copy(ctx context.Context, from, to string) error {
	template := &v1alpha1.Space{}
	if err := p.host.Get(ctx, client.ObjectKey{Name: from}, template); err != nil {
		return fmt.Errorf("read Space object %s: %w", from, err)
	}
	dir := datadir.Space(p.config.DataDir, to)
	err := os.CopyFS(dir, os.DirFS(datadir.Space(p.config.DataDir, from)))
	if err == nil {
		err = os.Remove(filepath.Join(dir, storeIDFile))
	}
	if err != nil {
		return fmt.Errorf("copy the files of space %s: %w", from, err)
	}
	id, err := datadir.StoreID(p.config.DataDir, to) // a new one
	if err != nil {
		return err
	}
	object := &v1alpha1.Space{
		ObjectMeta: metav1.ObjectMeta{Name: to, Labels: template.Labels, Annotations: template.Annotations, Finalizers: template.Finalizers},
		Spec:       template.Spec,
	}
	object.Annotations[translate.AnnotationStore] = id
	if err := p.host.Create(ctx, object); err != nil {
		return fmt.Errorf("create Space object %s: %w", to, err)
	}
	object.Status = template.Status
	if err := p.host.Status().Update(ctx, object); err != nil {
		return fmt.Errorf("write the status of space %s: %w", to, err)
	}
	return nil
}
