package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

// Apply creates or changes the objects in a YAML stream, in its order. The API
// server refuses a field that it does not know, which it would only warn about
// otherwise: a manifest with a misspelt field should fail its test.
func (c *Cluster) Apply(ctx context.Context, manifest []byte) error {
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return err
	}
	// Read anew each time: a manifest may use what an earlier one defined.
	groups, err := restmapper.GetAPIGroupResources(c.client.Discovery())
	if err != nil {
		return err
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	objects, err := parseManifest(manifest)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := apply(ctx, client, mapper, object); err != nil {
			return fmt.Errorf("apply %s %q: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

func parseManifest(manifest []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
			return nil, err
		}
		if len(object.Object) > 0 { // else nothing but a comment
			objects = append(objects, object)
		}
	}
}

func apply(ctx context.Context, client dynamic.Interface, mapper meta.RESTMapper, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	body, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	force := true
	var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace := object.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		resource = client.Resource(mapping.Resource).Namespace(namespace)
	}
	_, err = resource.Patch(ctx, object.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{
		FieldManager:    "test",
		FieldValidation: metav1.FieldValidationStrict,
		Force:           &force,
	})
	return err
}
