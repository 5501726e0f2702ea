package csi

import "context"

// turn waits until no other call works on the volume or the target, in this order: a call that has
// a target waits for nothing more. Where another volume is being mounted, or unmounted, the mount
// table shows neither the one state nor the other.
func (s *Server) turn(ctx context.Context, volume, target string) (done func(), err error) {
	ofVolume, err := s.turns.Take(ctx, volume)
	if err != nil {
		return nil, err
	}
	ofTarget, err := s.targets.Take(ctx, target)
	if err != nil {
		ofVolume()
		return nil, err
	}
	return func() { ofTarget(); ofVolume() }, nil
}
