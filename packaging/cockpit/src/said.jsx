// What is said in a box. Its title is no heading: pages differ in what stands above it.
import { Alert } from '@patternfly/react-core/dist/esm/components/Alert'

export const Said = props => <Alert isInline component="p" {...props} />
