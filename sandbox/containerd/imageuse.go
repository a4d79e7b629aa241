package containerd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
)

// Labels of images. Who uses an image is written on the image, since several
// workers may share a containerd, and none knows the others' tools.
const (
	// labelOrigin says how an image came into the store.
	labelOrigin = "toolfleet.origin"
	// labelUse, with a worker's id behind it, is when the worker last had a use
	// for the image and for which tools: "2026-01-02T15:04:05Z greet shout".
	labelUse = "toolfleet.use."
)

// How images come into the store. What has neither label came by other hands.
const (
	OriginPulled   = "pulled"
	OriginImported = "imported"
)

// markEvery is how old a mark may grow while its image is in use.
const markEvery = time.Hour

// longestMark bounds the names in a label, which may have 4,096 bytes with its
// key.
const longestMark = 2048

// KeepImages writes on the images of the store which tools use them, by image
// reference, and removes those that workers have pulled and that nobody has had
// a use for since unused ago. What was imported is never removed, nor what a
// sandbox runs from. It returns the names of those that are gone, and goes on
// after an error.
//
// An image that is removed in the very moment in which its first call for a
// long time comes costs that call a start, which is tried again.
func (r *Runtime) KeepImages(ctx context.Context, uses map[string][]string, unused time.Duration) (removed []string, err error) {
	found, err := r.client.ImageService().List(ctx)
	if err != nil {
		return nil, wrap("list images", err)
	}
	running, err := runningImages(ctx, r.client)
	if err != nil {
		return nil, err
	}
	tools := map[string][]string{}
	for ref, names := range uses {
		for _, name := range namesOf(ref) {
			tools[name] = append(tools[name], names...)
		}
	}
	now := time.Now()
	var errs []error
	for _, img := range found {
		used, inUse := r.images.lastUse(img.Name), len(tools[img.Name]) > 0 || running[img.Name]
		if inUse {
			used = now
		}
		if err := r.mark(ctx, &img, used, tools[img.Name]); err != nil {
			errs = append(errs, err)
			continue
		}
		if img.Labels[labelOrigin] != OriginPulled || inUse || now.Sub(lastUse(img)) < unused {
			continue
		}
		if err := wrapEnd("remove image", r.client.ImageService().Delete(ctx, img.Name)); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, img.Name)
	}
	return removed, errors.Join(errs...)
}

// mark writes on img when this worker used it last, if that has changed much.
func (r *Runtime) mark(ctx context.Context, img *images.Image, used time.Time, tools []string) error {
	key := labelUse + r.cfg.Owner
	at, names := readMark(img.Labels[key])
	slices.Sort(tools)
	tools = slices.Compact(tools)
	if used.Sub(at) < markEvery && slices.Equal(names, tools) {
		return nil
	}
	if used.Before(at) {
		used = at // an earlier run of this worker knew better
	}
	if used.IsZero() {
		return nil
	}
	label := used.UTC().Format(time.RFC3339)
	for _, name := range tools {
		if len(label)+len(name) > longestMark {
			break
		}
		label += " " + name
	}
	marked := *img
	marked.Labels = map[string]string{key: label}
	updated, err := r.client.ImageService().Update(ctx, marked, "labels."+key)
	if err != nil {
		return wrapEnd("mark image", err)
	}
	*img = updated
	return nil
}

// readMark reads a label of use.
func readMark(label string) (at time.Time, tools []string) {
	fields := strings.Fields(label)
	if len(fields) == 0 {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, fields[0])
	if err != nil {
		return time.Time{}, nil
	}
	return at, fields[1:]
}

// lastUse is when any worker last had a use for img, or when it came.
func lastUse(img images.Image) time.Time {
	last := img.UpdatedAt
	if len(usersOf(img)) > 0 {
		last = img.CreatedAt // what updates it now are the marks
	}
	for key, label := range img.Labels {
		if at, _ := readMark(label); strings.HasPrefix(key, labelUse) && at.After(last) {
			last = at
		}
	}
	return last
}

// usersOf are the labels of use of img, by worker.
func usersOf(img images.Image) map[string]string {
	users := maps.Clone(img.Labels)
	maps.DeleteFunc(users, func(key, _ string) bool { return !strings.HasPrefix(key, labelUse) })
	return users
}

// toolsOf are the tools that the workers say use img.
func toolsOf(img images.Image) []string {
	var tools []string
	for _, label := range usersOf(img) {
		_, names := readMark(label)
		tools = append(tools, names...)
	}
	slices.Sort(tools)
	return slices.Compact(tools)
}

// lastUse is when a start of this process last asked for an image.
func (c *imageCache) lastUse(name string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used[name]
}

// runningImages are the names of the images that sandboxes run from.
func runningImages(ctx context.Context, c *client.Client) (map[string]bool, error) {
	found, err := c.ContainerService().List(ctx)
	if err != nil {
		return nil, wrap("list containers", err)
	}
	running := map[string]bool{}
	for _, one := range found {
		running[one.Image] = true
	}
	return running, nil
}

// inUse says who uses img, or is empty.
func inUse(img images.Image, running bool) string {
	if tools := toolsOf(img); len(tools) > 0 {
		return fmt.Sprintf("tools use it (%s)", strings.Join(tools, ", "))
	}
	if running {
		return "a sandbox runs from it"
	}
	return ""
}
