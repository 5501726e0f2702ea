package kube

// Union is several informers of one resource that have no object in common, read as one.
type Union[T Object] []*Informer[T]

// Get returns the object with the key "name" or "namespace/name" from the informer that has it.
func (u Union[T]) Get(key string) (found T, known bool) {
	for _, one := range u {
		if found, known = one.Get(key); known {
			return found, true
		}
	}
	return found, false
}

// List returns the objects of all, in no order.
func (u Union[T]) List() []T {
	var all []T
	for _, one := range u {
		all = append(all, one.List()...)
	}
	return all
}
