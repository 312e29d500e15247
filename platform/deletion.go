// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster/pki"
)

// ReasonDeleting is the reason of the condition Ready of a space that is being deleted.
const ReasonDeleting = "Deleting"

// deletingFile is in the directory of a space that is being deleted, from the first step to the last, and holds the deletion
// policy. Such a space is never served again.
const deletingFile = "deleting"

// deletions are the spaces that are being deleted. It is safe for concurrent use.
type deletions struct {
	life context.Context // ends with the platform
	work sync.WaitGroup

	mu sync.Mutex
	of map[string]*deletion
}

type deletion struct {
	asked   v1alpha1.DeletionPolicy
	policy  v1alpha1.DeletionPolicy // what is left to do of it; for the goroutine that deletes alone
	since   time.Time
	message string // what it waits for
}

// Delete begins to delete a space: what it runs on the host, its store, its keys, and its credentials, as the policy says. It
// returns once that is noted on disk: from then on it goes on until nothing is left, also after a crash. Until then, the
// status of the space says what it waits for.
func (p *Platform) Delete(name string, policy v1alpha1.DeletionPolicy) error {
	switch policy {
	case v1alpha1.DeletionDelete, v1alpha1.DeletionRetain:
	case v1alpha1.DeletionSnapshot:
		if p.snapshots.keeper.Bucket() == nil {
			return apierrors.NewBadRequest("policy=Snapshot: there is no place for snapshots; start berth with --snapshot-to, or choose Delete or Retain")
		}
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("policy=%s: want Delete, Retain, or Snapshot", policy))
	}
	if _, ok := p.Status(name); !ok {
		return apierrors.NewNotFound(v1alpha1.Resource("spaces"), name)
	}
	if asked, deleting := p.deletions.asked(name); deleting {
		if asked != policy {
			return apierrors.NewConflict(v1alpha1.Resource("spaces"), name, fmt.Errorf("it is being deleted with policy=%s already", asked))
		}
		return nil
	}
	end, err := p.changes.begin(name, "being deleted")
	if err != nil {
		return err
	}
	dir := p.spaceDir(name)
	if err := errors.Join(os.MkdirAll(dir, 0o700), pki.WriteFile(filepath.Join(dir, deletingFile), []byte(policy))); err != nil {
		end()
		return fmt.Errorf("delete space %s: %w", name, err)
	}
	p.beginDeletion(name, policy, end)
	return nil
}

// resumeDeletions goes on with what an earlier run began.
func (p *Platform) resumeDeletions(ctx context.Context) error {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.deletions.life = life
	p.onStop(func(context.Context) { stop(); p.deletions.work.Wait() })
	p.commands.Handle("DELETE /spaces/{name}", control.Answer(func(r *http.Request) (any, error) {
		name := r.PathValue("name")
		if err := p.Delete(name, v1alpha1.DeletionPolicy(r.URL.Query().Get("policy"))); err != nil {
			return nil, err
		}
		status, _ := p.Status(name)
		return status, nil
	}))
	entries, err := os.ReadDir(spacesDir(p.config.DataDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list spaces: %w", err)
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		policy, deleting, err := deletionOf(p.spaceDir(entry.Name()))
		if err != nil { // the space is not served; the others are
			p.logger.Error(err, "Whether a space is being deleted can't be read; repair its directory, and start berth again", "space", entry.Name())
		}
		if !deleting {
			continue
		}
		end, err := p.changes.begin(entry.Name(), "being deleted")
		if err != nil {
			return err
		}
		p.beginDeletion(entry.Name(), policy, end)
		p.config.Progress("Space %s is being deleted, as an earlier run was told", entry.Name())
	}
	return nil
}

// isBeingDeleted reports whether a space is not to be served, as it is being deleted. One of which that can't be read is not served either.
func (p *Platform) isBeingDeleted(name string) bool {
	_, deleting, err := deletionOf(p.spaceDir(name))
	return deleting || err != nil
}

// deletionOf reads whether the space of a directory is being deleted.
func deletionOf(dir string) (policy v1alpha1.DeletionPolicy, deleting bool, err error) {
	data, err := os.ReadFile(filepath.Join(dir, deletingFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read whether a space is being deleted: %w", err)
	}
	return v1alpha1.DeletionPolicy(data), true, nil
}

func (p *Platform) beginDeletion(name string, policy v1alpha1.DeletionPolicy, end func()) {
	d := &deletion{asked: policy, policy: policy, since: time.Now(), message: "the space is being stopped"}
	p.deletions.add(name, d)
	p.deletions.work.Go(func() {
		defer end()
		ctx := p.deletions.life
		pause := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1.5, Steps: math.MaxInt32, Cap: 5 * time.Second}
		for {
			var left string
			err := safego.Call("delete", func() (err error) {
				left, err = p.deleteOnce(ctx, name, d)
				return err
			})
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				p.logger.Error(err, "delete space; it is tried again", "space", name)
				left = err.Error() + "; it is tried again"
			case left == "":
				p.deletions.remove(name)
				p.config.Progress("Space %s is deleted", name)
				return
			}
			p.deletions.say(d, left)
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause.Step()):
			}
		}
	})
}

// deleteOnce does what can be done now, and returns what is left. Each step may be repeated.
func (p *Platform) deleteOnce(ctx context.Context, name string, d *deletion) (left string, err error) {
	if process := p.processes.get(name); process != nil {
		process.Stop(ctx)
		p.processes.remove(name)
	}
	if err := p.shard.StopSpace(ctx, name); err != nil {
		if _, has := p.shard.Status(name); has {
			return "", err
		}
		p.logger.Error(err, "Space that is being deleted did not stop in order", "space", name)
	}
	if d.policy == v1alpha1.DeletionSnapshot {
		if err := p.takeLast(ctx, name); err != nil {
			return "", err
		}
		d.policy = v1alpha1.DeletionDelete
	}
	if left, err := p.removeFromHost(ctx, name); err != nil || left != "" {
		return left, err
	}
	if err := errors.Join(p.secrets.remove(ctx, name), p.shard.Forget(name)); err != nil {
		return "", err
	}
	if err := errors.Join(removeIfThere(KubeconfigPath(p.config.DataDir, name)), os.RemoveAll(DedicatedDir(p.config.DataDir, name))); err != nil {
		return "", fmt.Errorf("delete the files of space %s: %w", name, err)
	}
	return "", moveAway(p.config.DataDir, name, d.policy == v1alpha1.DeletionRetain)
}

// takeLast takes the last snapshot of a space, and notes that it was taken.
func (p *Platform) takeLast(ctx context.Context, name string) error {
	dir, keeper := p.spaceDir(name), p.snapshots.keeper
	if snapshot.Exists(dir) {
		if keeper.Bucket() == nil { // this run was started without one
			return errors.New("the last snapshot of the space is to be taken, and there is no place for it; start berth with --snapshot-to")
		}
		if _, err := keeper.Take(ctx, name, keeper.Bucket()); err != nil {
			return err
		}
	}
	if err := pki.WriteFile(filepath.Join(dir, deletingFile), []byte(v1alpha1.DeletionDelete)); err != nil {
		return fmt.Errorf("note the last snapshot of space %s: %w", name, err)
	}
	return nil
}

func (p *Platform) removeFromHost(ctx context.Context, name string) (left string, err error) {
	host, err := client.New(p.host.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return "", fmt.Errorf("make host client: %w", err)
	}
	id, err := p.storeID(name)
	if err != nil {
		return "", err
	}
	space := translate.Space{Name: name, Store: id}
	account, err := client.New(syncer.AsAccount(p.host.Config(), space), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return "", fmt.Errorf("make host client: %w", err)
	}
	if left, err := isolation.Remove(ctx, host, account, space); err != nil || left != "" {
		return left, err
	}
	if volumes := p.shard.Host().VolumesBeingReclaimed(name); volumes > 0 {
		return fmt.Sprintf("the host deletes %d persistent volumes of its claims; if it does not, look at their events, or set their reclaim policy to Retain", volumes), nil
	}
	return "", nil
}

// moveAway takes the directory of a space from where spaces are, in one step, so that a crash leaves it there or not.
func moveAway(dataDir, name string, retain bool) error {
	dir, to := spaceDir(dataDir, name), filepath.Join(scratchDir(dataDir), "deleted-"+name)
	if retain {
		to = retainedDir(dataDir, name)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.RemoveAll(to)); err != nil {
		return fmt.Errorf("delete space %s: %w", name, err)
	}
	if err := os.Rename(dir, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete space %s: %w", name, err)
	}
	if retain {
		return nil
	}
	if err := os.RemoveAll(to); err != nil {
		return fmt.Errorf("delete the files of space %s: %w", name, err)
	}
	return nil
}

// takeBack gives a space that is created the directory that one of its name left when it was deleted with Retain.
func takeBack(dataDir, name string) error {
	from, dir := retainedDir(dataDir, name), spaceDir(dataDir, name)
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	err := removeIfThere(filepath.Join(from, deletingFile))
	if err == nil {
		err = os.MkdirAll(filepath.Dir(dir), 0o700)
	}
	if err == nil {
		err = os.Rename(from, dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take back what space %s left: %w", name, err)
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (d *deletions) add(name string, one *deletion) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = map[string]*deletion{}
	}
	d.of[name] = one
}

func (d *deletions) remove(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.of, name)
}

// asked returns the policy by which a space is being deleted.
func (d *deletions) asked(name string) (policy v1alpha1.DeletionPolicy, deleting bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one := d.of[name]; one != nil {
		return one.asked, true
	}
	return "", false
}

func (d *deletions) say(one *deletion, message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one.message = message
}

// statuses are those of the spaces that are being deleted.
func (d *deletions) statuses() (list []shard.Status) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, deletion := range d.of {
		list = append(list, deletion.status(name))
	}
	return list
}

func (d *deletions) status(name string) (status shard.Status, deleting bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	deletion := d.of[name]
	if deletion == nil {
		return shard.Status{}, false
	}
	return deletion.status(name), true
}

func (d *deletion) status(name string) shard.Status {
	return shard.Status{Name: name, Conditions: []metav1.Condition{{
		Type: shard.ConditionReady, Status: metav1.ConditionFalse, Reason: ReasonDeleting, Message: d.message, LastTransitionTime: metav1.NewTime(d.since),
	}}}
}
